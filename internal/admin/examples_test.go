package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// asking is an operation with the path and body of its example.
type asking struct {
	operation, method, path, request string
	code                             int
}

// exampleWorld creates the data of the examples and returns their requests in order.
func exampleWorld(t *testing.T) (*fixture, []asking) {
	t.Helper()
	b, keeper := setupArchive(t)
	b.exampleTopic(t)
	b.reconfigure(t, func(c *Config) { c.Redeliverer = &mailRedeliverer{} })
	const order = "01a2005c-395d-72e1-8345-2406e2489440"
	n := 0
	deadLetter := func(aggregate string, seq int64, change func(*dlq.DeadLetter)) string {
		n++
		l := testDeadLetter(aggregate, seq)
		l.EventID = mustID(t, fmt.Sprintf("%s%02d", exampleID[:len(exampleID)-2], n))
		l.Payload = []byte(`{"order_id":"` + aggregate + `","total":"6.78"}`)
		l.Headers = map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
		if change != nil {
			change(l)
		}
		return b.writeDeadLetter(t, l, time.Time{}).EventID.String()
	}
	first := deadLetter(order, 1, nil)
	deadLetter(order, 2, func(l *dlq.DeadLetter) {
		l.Status, l.ErrorClass, l.ErrorCode, l.ErrorText, l.ErrorChain = dlq.Blocked, "behind", "", "an earlier event of its aggregate is a dead letter", nil
	})
	other := func() string { return deadLetter(fmt.Sprintf("01a2005c-395d-72e1-8345-2406e24894%02d", 50+n), 1, nil) }
	gone := other()
	by := dlq.Actor{Name: "mara", Reason: "INC-311 never existed"}
	if err := b.store.Discard(t.Context(), mustID(t, gone), by); err != nil {
		t.Fatal(err)
	}
	if left, err := keeper.Purge(t.Context(), []gocql.UUID{mustID(t, gone)}, false, by); err != nil || left[0] != nil {
		t.Fatal(left, err)
	}
	status := `{"state":"running","ready":true,"problems":[],"host":"relay-1","version":"1.0.0","breaker":{"state":"closed"},"streams":4,"behind_seconds":2.1,` +
		`"groups":[{"part":1,"parts":1,"from_token":"-9223372036854775808","streams":4,"behind_seconds":2.1,"oldest_unacknowledged_seconds":0}],` +
		`"lag":[{"name":"0xabcd","behind_seconds":2.1}],"stalled_topics":[],"tail":{"on":true,"streams":4,"groups":1,"interval_ms":20},"rates":{"published":812.5,"failures":0,"found":{"tail":812.5}},"latency":{"p50_ms":2.4,"p99_ms":7.1}}`
	if err := b.Session.Query("INSERT INTO outbox.relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'orders', 'outbox.outbox_messages', 'relay-1/7', ?, ?)",
		time.Now(), status).Exec(); err != nil {
		t.Fatal(err)
	}
	const deadLetters = "/v1/dead-letters/"
	get := func(op, path string) asking { return asking{op, "GET", path, "", 200} }
	out := []asking{
		get("get-me", "/v1/me"), get("list-dead-letters", "/v1/dead-letters?aggregate_id="+order), get("get-dead-letter", deadLetters+first), get("get-stats", "/v1/dead-letters/stats"),
		get("list-groups", "/v1/dead-letters/groups"), get("get-event", "/v1/events/"+first), get("get-aggregate", "/v1/aggregates/"+order), get("list-events", "/v1/events"), get("list-archives", "/v1/archives"), get("list-relays", "/v1/relays"), get("get-status", "/v1/status"),
		get("list-topics", "/v1/topics"), get("list-records", "/v1/topics/OrderCreated/records?limit=1"),
		{"preview", "POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"error_class":"record_too_large"},"rate":50}`, 200},
		{"create-job", "POST", "/v1/jobs", `{"action":"replay","filter":{"error_class":"record_too_large"},"rate":50,"canary":true,"dry_run":true}`, 200},
		{"create-job", "POST", "/v1/jobs", `{"action":"replay","filter":{"error_class":"record_too_large"},"rate":50,"canary":true}`, 202},
		{"redeliver-subscription", "POST", redeliverPath, `{"key":"customer-42","since":"2026-01-02T00:00:00Z","dry_run":true}`, 200},
		{"redeliver-subscription", "POST", redeliverPath, `{"key":"customer-42","since":"2026-01-02T00:00:00Z","until":"2026-01-03T00:00:00Z"}`, 202},
		{"set-dead-letter", "POST", deadLetters + other() + "/set", `{"priority":10,"add_tags":["vip"]}`, 200},
		{"edit-dead-letter", "POST", deadLetters + other() + "/edit", `{"payload_text":"{\"total\":\"6.79\"}"}`, 200},
	}
	for _, a := range actions {
		id := other()
		if a.action == dlq.ActionReopen {
			if err := b.store.Discard(t.Context(), mustID(t, id), dlq.Actor{Name: "eve"}); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, asking{string(a.action) + "-dead-letter", "POST", deadLetters + id + "/" + string(a.action), "{}", 200})
	}
	out = append(out, get("get-job", "/v1/jobs/JOB"), get("list-jobs", "/v1/jobs"))
	for _, st := range steerings {
		out = append(out, asking{st.name + "-job", "POST", "/v1/jobs/JOB/" + st.name, "", 200})
	}
	out = append(out, asking{"reshard-relay", "POST", reshardPath, `{"to":4,"from":2}`, 200})
	return b, append(out, get("list-audit", "/v1/audit?limit=1"))
}

// exampleTopic starts a broker with a topic that has two records.
func (b *fixture) exampleTopic(t *testing.T) {
	t.Helper()
	cluster := world.StartBroker(t, kfake.SeedTopics(1, "OrderCreated"))
	seeds := kgo.SeedBrokers(cluster.ListenAddrs()...)
	b.reconfigure(t, func(c *Config) {
		c.Kafka, c.Relay, c.Resharder = world.Kafka{seeds}, "orders", &testResharder{shards: 2}
		c.Written = func(_ context.Context, _ string, since time.Time, _ int) (out []WrittenEvent, err error) {
			return append(out, WrittenEvent{ID: "01a2005c-395d-72e3-8401-994110828577", AggregateID: "01a2005c-395d-72e1-8345-2406e2489477", Type: "OrderCreated", Sequence: 1, At: since.Add(time.Second)}), nil
		}
	})
	client, err := kgo.NewClient(seeds)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for seq := range int64(2) {
		e := outbox.Event{
			ID: outbox.IDFromUUID(mustID(t, exampleID)), AggregateID: outbox.IDFromText("01a2005c-395d-72e1-8345-2406e2489440"), AggregateType: "order", Sequence: seq + 1, Type: "OrderCreated",
			CreatedAt: time.Date(2026, 11, 22, 2, 10, 5, 0, time.UTC), Payload: []byte(`{"total":"6.78"}`), ContentType: "application/json",
			Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		}
		r := &kgo.Record{Topic: "OrderCreated", Timestamp: e.CreatedAt, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/orders")}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each example is a real response: the test sends the request, and the response has all
// members of the example with the same kinds. Every operation has examples of its request
// and of each response, and they are valid by their schemas.
func TestOpenAPI_ExamplesAreTrue(t *testing.T) {
	t.Parallel()
	b, all := exampleWorld(t)
	have := readExamples()
	if *update {
		clear(have)
	}
	job, asked := "", make(map[string]string)
	for _, ask := range all {
		version := `"1"`
		if ask.operation == "reopen-dead-letter" {
			version = `"2"` // it was discarded before
		}
		a := b.ask(t, access.Admin, ask.method, strings.ReplaceAll(ask.path, "JOB", job), ask.request, "If-Match", version, httpapi.ReasonHeader, "INC-311%20the%20broker%20takes%20large%20records%20now")
		if a.code != ask.code {
			t.Fatalf("%s = %d, want %d: %s", ask.operation, a.code, ask.code, a.body)
		}
		var is any
		a.into(t, ask.code, &is)
		if ask.operation == "create-job" && ask.code == 202 {
			job = is.(map[string]any)["id"].(string)
		}
		e, code := have[ask.operation], fmt.Sprint(ask.code)
		if *update {
			if e.Answers == nil {
				e.Answers = make(map[string]json.RawMessage)
			}
			e.Request, e.Answers[code] = json.RawMessage(ask.request), marshal(t, shorten(is))
			have[ask.operation] = e
			continue
		}
		asked[ask.operation] = ask.request // of two, the last
		var says any
		if err := json.Unmarshal(e.Answers[code], &says); err != nil {
			t.Errorf("%s has no example of %s: %v", ask.operation, code, err)
			continue
		}
		known := memberKinds(is)
		for at, kind := range memberKinds(says) {
			if known[at] != kind {
				t.Errorf("the example of what %s answers has %s, %s; the answer has %q there: %s", ask.operation, at, kind, known[at], a.body)
			}
		}
	}
	if *update {
		text, err := json.MarshalIndent(have, "", " ")
		if err == nil {
			err = os.WriteFile("examples.json", append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Log("written; test again, so that they are in the binary")
		return
	}
	for op, want := range asked {
		if got := compact(t, have[op].Request); string(got) != want {
			t.Errorf("the example of what %s is asked is %s, want %s; go test ./internal/admin -run Examples -update", op, got, want)
		}
	}
	valid(t, b.ops.api.OpenAPI())
}

// valid validates all examples against their schemas, and reports missing ones.
func valid(t *testing.T, doc *huma.OpenAPI) {
	t.Helper()
	n := 0
	check := func(where string, media *huma.MediaType, mode huma.ValidateMode) {
		n++
		var plain any
		if err := json.Unmarshal(marshal(t, media.Example), &plain); err != nil || plain == nil {
			t.Errorf("%s has no example, %v", where, err)
			return
		}
		var result huma.ValidateResult
		huma.Validate(doc.Components.Schemas, media.Schema, huma.NewPathBuffer(nil, 0), mode, plain, &result)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", where, err)
		}
	}
	for name, r := range doc.Components.Responses {
		check(name, r.Content["application/problem+json"], huma.ModeReadFromServer)
	}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				check(op.OperationID+" is asked", op.RequestBody.Content["application/json"], huma.ModeWriteToServer)
			}
			for code, r := range op.Responses {
				if media := r.Content["application/json"]; media != nil {
					check(op.OperationID+" answers "+code, media, huma.ModeReadFromServer)
				}
			}
		}
	}
	if n < 48 {
		t.Errorf("only %d examples", n)
	}
}

// memberKinds returns the members of a value with their kinds.
func memberKinds(v any) map[string]string {
	out := make(map[string]string)
	var walk func(at string, v any)
	walk = func(at string, v any) {
		out[at] = fmt.Sprintf("%T", v)
		switch v := v.(type) {
		case map[string]any:
			for name, w := range v {
				walk(at+"."+name, w)
			}
		case []any:
			for _, w := range v {
				walk(at+"[]", w)
			}
		}
	}
	walk("", v)
	return out
}

// shorten keeps one element of each list of objects.
func shorten(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = shorten(v[name])
		}
	case []any:
		for i := range v {
			v[i] = shorten(v[i])
		}
		if len(v) > 0 {
			if _, object := v[0].(map[string]any); object {
				return v[:1]
			}
		}
	}
	return v
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func compact(t *testing.T, b json.RawMessage) []byte {
	t.Helper()
	if len(b) == 0 {
		return nil
	}
	return marshal(t, b)
}
