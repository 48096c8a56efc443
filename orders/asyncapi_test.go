package orders

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The document is valid AsyncAPI 3.0, and all its references lead somewhere.
func TestAsyncAPI_IsValid(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := jsonschema.UnmarshalJSON(z)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("asyncapi-3.0.0.json", spec); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("asyncapi-3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]Publication{
		"defaults": {},
		"all": {
			Topics: map[string]string{EventCreated: "shop.orders", EventUpdated: "shop.orders", EventCancelled: "shop.orders-1"},
			Source: "/shop", Brokers: []string{"kafka-1:9092", "kafka-2:9092"}, TLS: true, SASL: "scram-sha-512",
		},
		"another mechanism": {Brokers: []string{"kafka-1:9092"}, SASL: "aws-msk-iam"},
	} {
		doc := parseDocument(t, p)
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		refs := 0
		eachRef(doc, func(to string) {
			refs++
			at := any(doc)
			for key := range strings.SplitSeq(strings.TrimPrefix(to, "#/"), "/") {
				at = at.(object)[key] //nolint:forcetypeassert // a panic names the line
			}
			if at == nil {
				t.Errorf("%s: reference %s leads nowhere", name, to)
			}
		})
		if refs < 10 {
			t.Errorf("%s: %d references", name, refs)
		}
	}
	if err := schema.Validate(object{"asyncapi": "3.0.0"}); err == nil {
		t.Error("the schema accepts a document without info")
	}
}

// The topics, the key and the servers equal the publication's.
func TestAsyncAPI_DescribesThePublication(t *testing.T) {
	t.Parallel()
	doc := parseDocument(t, Publication{
		Topics: map[string]string{EventCreated: "all", EventUpdated: "all"}, Source: "/shop",
		Brokers: []string{"a:1", "b:2"}, TLS: true, SASL: "plain",
	})
	for path, want := range map[string]any{
		"channels/all/address":                                                                "all",
		"channels/all/messages/OrderCreated/$ref":                                             "#/components/messages/OrderCreated",
		"channels/all/messages/OrderUpdated/$ref":                                             "#/components/messages/OrderUpdated",
		"channels/OrderCancelled/address":                                                     "OrderCancelled",
		"operations/publishOrderUpdated/channel/$ref":                                         "#/channels/all",
		"components/messages/OrderCreated/bindings/kafka/key/format":                          "uuid",
		"components/messages/OrderCreated/headers/properties/" + outbox.HeaderType + "/const": "OrderCreated",
		"components/schemas/CloudEvent/properties/" + outbox.HeaderSource + "/const":          "/shop",
		"servers/broker-2/host":                                                               "b:2",
		"servers/broker-2/protocol":                                                           "kafka-secure",
		"components/securitySchemes/sasl/type":                                                "plain",
		"components/schemas/Line/additionalProperties":                                        nil,
	} {
		at := any(doc)
		for key := range strings.SplitSeq(path, "/") {
			o, _ := at.(object)
			at = o[key]
		}
		if at != want {
			t.Errorf("%s is %v, want %v", path, at, want)
		}
	}
	if n := len(doc["channels"].(object)); n != 2 { //nolint:forcetypeassert // a panic names the line
		t.Errorf("%d channels, want 2", n)
	}
}

// The records of the sample orders, and of all changes, are as their message is
// described; other records are not.
func TestAsyncAPI_FitsTheRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := parseDocument(t, Publication{Source: "/shop"})
	for _, name := range []string{"Order", "Line", "Address"} { // undescribed fields are errors in this test
		doc["components"].(object)["schemas"].(object)[name].(object)["additionalProperties"] = false //nolint:forcetypeassert // a panic names the line
	}
	schemas := make(map[string]*jsonschema.Schema)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	c.AssertFormat()
	if err := c.AddResource("doc.json", doc); err != nil {
		t.Fatal(err)
	}
	for _, eventType := range EventTypes {
		for _, part := range []string{"payload", "headers"} {
			s, err := c.Compile("doc.json#/components/messages/" + eventType + "/" + part)
			if err != nil {
				t.Fatal(err)
			}
			schemas[eventType+" "+part] = s
		}
	}
	check := func(e *outbox.Event) error {
		payload, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
		if err != nil {
			return err
		}
		headers := object{outbox.HeaderCaptured: rows.CapturedTail, outbox.HeaderAttempts: "2"}
		for _, h := range outbox.AppendHeaders[outbox.Header](nil, e, "/shop") {
			headers[h.Key] = string(h.Value)
		}
		if err := schemas[e.Type+" payload"].Validate(payload); err != nil {
			return fmt.Errorf("payload: %w", err)
		}
		return schemas[e.Type+" headers"].Validate(headers)
	}

	h := newHandler(t, b.Service, apiserver.Config{})
	sample, err := os.ReadFile(harness.Sample(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	create := func(body string) string {
		r := world.Request(t, h, "POST", "/v1/orders", body, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		if r.Status != http.StatusCreated {
			t.Fatalf("create %s: %d %s", body, r.Status, r.Text)
		}
		id := fmt.Sprint(r.Body["id"])
		ids = append(ids, id)
		return id
	}
	for line := range bytes.Lines(sample) {
		var l struct{ Order json.RawMessage }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Order != nil {
			create(string(l.Order))
		}
	}
	do := func(method, path, body string, version int) {
		if r := world.Request(t, h, method, "/v1/orders/"+path, body, "If-Match", fmt.Sprintf("%q", fmt.Sprint(version))); r.Status != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, r.Status, r.Text)
		}
	}
	id := create(strings.Replace(goodBody, `"17850"`, "null", 1))
	do("PATCH", id, `{"address":{"name":"A","street":"B 1","city":"C"}}`, 1)
	do("POST", id+"/confirm", `{}`, 2)
	do("POST", id+"/ship", `{"carrier":"D","tracking":"1"}`, 3)
	id = create(goodBody)
	do("POST", id+"/cancel", `{"reason":"E","credit_note":"C1"}`, 1)

	seen := make(map[string]int)
	var last outbox.Event
	for _, id := range ids {
		u, err := gocql.ParseUUID(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Outbox(t, u) {
			seen[e.Type]++
			if err := check(&e.Event); err != nil {
				t.Errorf("%s %s: %v\n%s", e.Type, e.ID, err, e.Payload)
			}
			last = e.Event
		}
	}
	if seen[EventCreated] < 30 || seen[EventUpdated] != 3 || seen[EventCancelled] != 1 {
		t.Errorf("checked %v", seen)
	}
	for what, change := range map[string]func(e *outbox.Event){
		"another status": func(e *outbox.Event) {
			e.Payload = bytes.Replace(e.Payload, []byte(`"cancelled"`), []byte(`"lost"`), 1)
		},
		"an unknown field":     func(e *outbox.Event) { e.Payload = bytes.Replace(e.Payload, []byte(`{`), []byte(`{"x":1,`), 1) },
		"a missing field":      func(e *outbox.Event) { e.Payload = []byte(`{"id":"` + e.AggregateID.String() + `"}`) },
		"another type":         func(e *outbox.Event) { e.AggregateType = "invoice" },
		"an id that is a text": func(e *outbox.Event) { e.ID = outbox.IDFromText("7") },
	} {
		e := last
		change(&e)
		if check(&e) == nil {
			t.Errorf("a record with %s fits the description", what)
		}
	}
}

// The server serves the description without servers.
func TestAsyncAPI_IsServed(t *testing.T) {
	t.Parallel()
	p := Publication{Topics: map[string]string{EventCreated: "orders.created"}}
	s, err := New(nil, Config{Publication: p})
	if err != nil {
		t.Fatal(err)
	}
	r := world.Request(t, newHandler(t, s, apiserver.Config{}), "GET", "/asyncapi.json", "")
	want, err := p.AsyncAPI()
	if err != nil || r.Status != http.StatusOK || r.Text != string(want) || !strings.Contains(r.Text, `"orders.created"`) || strings.Contains(r.Text, `"servers"`) {
		t.Errorf("GET /asyncapi.json = %d %s, %v", r.Status, r.Text, err)
	}
}

// parseDocument returns the parsed document of p.
func parseDocument(t *testing.T, p Publication) object {
	t.Helper()
	b, err := p.AsyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return doc.(object) //nolint:forcetypeassert // a document is an object
}

// eachRef calls f with each reference in v.
func eachRef(v any, f func(string)) {
	switch v := v.(type) {
	case object:
		for key, child := range v {
			if to, ok := child.(string); ok && key == "$ref" {
				f(to)
			}
			eachRef(child, f)
		}
	case []any:
		for _, child := range v {
			eachRef(child, f)
		}
	}
}
