package messages

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// setupSchemas returns a service with a registry of the subjects orders-value (JSON Schema, id
// 1) and sums-value (Avro, id 2), and its log.
func setupSchemas(t *testing.T, more ...func(*Config)) (b *fixture, fake *srfake.Registry, log *bytes.Buffer) {
	t.Helper()
	fake = srfake.New(srfake.WithAuth("Basic " + base64.StdEncoding.EncodeToString([]byte("user:hunter2"))))
	t.Cleanup(fake.Close)
	fake.SeedSchema("orders-value", 1, 1, sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","required":["n"],
		"properties":{"n":{"type":"integer"},"card":{"pattern":"^[0-9]+$"},"mail":{"format":"email"}}}`})
	fake.SeedSchema("sums-value", 1, 2, sr.Schema{Type: sr.TypeAvro, Schema: `{"type":"record","name":"S","fields":[{"name":"m","type":{"type":"record","name":"M","fields":[{"name":"v","type":"string"}]}}]}`})
	schemas, err := registry.New(strings.Replace(fake.URL(), "http://", "http://user:hunter2@", 1), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	log = new(bytes.Buffer)
	set := func(c *Config) { c.Schemas, c.Logger = schemas, slog.New(slog.NewTextHandler(log, nil)) }
	return setup(t, append(more, set)...), fake, log
}

// A stored message has the URL of the schema that it fits. A message's own header is kept, and
// a topic without a schema has none. A scheduled message has it too.
func TestHTTP_StoresWhatFitsTheSchema(t *testing.T) {
	t.Parallel()
	b, fake, _ := setupSchemas(t)
	for _, tt := range []struct{ body, schema string }{
		{`{"topic":"orders","payload":{"n":1}}`, fake.URL() + "/schemas/ids/1"},
		{`{"topic":"orders","payload_text":"{\"n\":1}","headers":{"x":"y"}}`, fake.URL() + "/schemas/ids/1"},
		{`{"topic":"orders","payload":{"n":1},"headers":{"ce_dataschema":"/own"}}`, "/own"},
		{`{"topic":"sums","payload_base64":"` + base64.StdEncoding.EncodeToString([]byte{0, 0, 0, 0, 2, 2, 'a'}) + `"}`, fake.URL() + "/schemas/ids/2"},
		{`{"topic":"free","payload":"x"}`, ""},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", tt.body)
		if r.Status != 202 {
			t.Fatalf("POST %s = %d %s", tt.body, r.Status, r.Text)
		}
		e := b.events(t)[r.ID(t)]
		if got := e.Headers[outbox.HeaderDataSchema]; got != tt.schema {
			t.Errorf("POST %s: schema %q, want %q", tt.body, got, tt.schema)
		}
		if strings.Contains(fmt.Sprint(e.Headers), "hunter2") {
			t.Errorf("the event has the credentials: %v", e.Headers)
		}
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"orders","key":"k","tombstone":true}`); r.Status != 202 || b.events(t)[r.ID(t)].Headers[outbox.HeaderDataSchema] != "" {
		t.Errorf("POST of a tombstone = %d %s", r.Status, r.Text)
	}
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"orders","payload":{"n":1},"delay":"1h"}`)
	if m, err := b.schedule.Read(t.Context(), r.ID(t)); err != nil || m.Headers[outbox.HeaderDataSchema] != fake.URL()+"/schemas/ids/1" {
		t.Errorf("scheduled: headers %v, %v", m.Headers, err)
	}
}

// A payload that breaks the contract is 422. The response names the payload, and the place in
// it, and repeats no value of it. Nothing is stored.
func TestHTTP_RefusesWhatBreaksTheSchema(t *testing.T) {
	t.Parallel()
	b, _, log := setupSchemas(t)
	for _, tt := range []struct{ message, want string }{
		{`{"topic":"orders","payload":{"n":"x"}}`, "does not fit schema 1 of orders-value: /n: got string, want integer"},
		{`{"topic":"orders","payload":{"n":1,"card":"secret-1"}}`, `/card: does not match the pattern`},
		{`{"topic":"orders","payload":{"n":1,"mail":"secret-1"}}`, `/mail: is not valid email`},
		{`{"topic":"orders"}`, "it is not JSON"},
		{`{"topic":"orders","payload_text":"secret-1"}`, "it is not JSON"},
		{`{"topic":"sums","payload":{"m":{"v":"a"}}}`, "must be in the wire format"},
		{`{"topic":"sums","payload_base64":"AAAAAAJY"}`, "does not fit schema 2 of sums-value: /m/v: the payload ends too early"},
		{`{"topic":"sums","payload_base64":"AAAAAAECYQ=="}`, "schema 1, which is none of sums-value"},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", tt.message)
		errs, _ := r.Body["errors"].([]any)
		if r.Status != 422 || len(errs) != 1 || strings.Contains(r.Text, "secret-1") {
			t.Errorf("POST %s = %d %s, want 422 with one error", tt.message, r.Status, r.Text)
			continue
		}
		one := errs[0].(map[string]any)
		if text := fmt.Sprint(one["message"]); one["location"] != "body.payload" || !strings.Contains(text, tt.want) {
			t.Errorf("POST %s: %v: %s, want body.payload: %s", tt.message, one["location"], text, tt.want)
		}
	}
	r := world.Request(t, b.handler, "POST", "/v1/messages/batch", `{"messages":[{"topic":"orders","payload":{}},{"topic":"orders","payload":{"n":1}}]}`)
	if r.Status != 207 || r.Body["rejected"] != 1.0 || !strings.Contains(r.Text, "missing property 'n'") {
		t.Errorf("a batch: %d %s", r.Status, r.Text)
	}
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events are stored, want the one that fits", n)
	}
	if strings.Contains(log.String(), "secret-1") {
		t.Errorf("the log has a payload: %s", log)
	}
}

// While the registry is unreachable, the last known schema decides. Without one the request is
// 503 with Retry-After, and nothing is stored. No response or log has the credentials.
func TestHTTP_RegistryAway(t *testing.T) {
	t.Parallel()
	b, fake, log := setupSchemas(t)
	if r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"orders","payload":{"n":1}}`); r.Status != 202 {
		t.Fatalf("POST = %d %s", r.Status, r.Text)
	}
	fake.Close()
	for body, status := range map[string]int{`{"topic":"orders","payload":{"n":1}}`: 202, `{"topic":"orders","payload":{}}`: 422} {
		if r := world.Request(t, b.handler, "POST", "/v1/messages", body); r.Status != status {
			t.Errorf("POST %s = %d %s, want %d", body, r.Status, r.Text, status)
		}
	}
	for path, body := range map[string]string{"/v1/messages": `{"topic":"free"}`, "/v1/messages/batch": `{"messages":[{"topic":"free"}]}`} {
		r := world.Request(t, b.handler, "POST", path, body, "Idempotency-Key", "k")
		if !strings.Contains(r.Text, "The schema registry is unavailable. Nothing was stored") || strings.Contains(r.Text, "hunter2") {
			t.Errorf("POST %s = %d %s", path, r.Status, r.Text)
		}
		if path == "/v1/messages" && (r.Status != 503 || r.Header.Get("Retry-After") == "") {
			t.Errorf("POST %s = %d, Retry-After %q", path, r.Status, r.Header.Get("Retry-After"))
		}
	}
	if n := len(b.events(t)); n != 2 {
		t.Errorf("%d events are stored, want 2", n)
	}
	if strings.Contains(log.String(), "hunter2") || !strings.Contains(log.String(), "schema registry unavailable") {
		t.Errorf("log %s", log)
	}
}

// A check is charged to the quota of its client, and reports the first violations only.
func TestHTTP_ChecksSchemasAfterTheQuota(t *testing.T) {
	t.Parallel()
	b, fake, _ := setupSchemas(t, func(c *Config) { c.MessagesPerSecond = 0.001 })
	fake.SeedSchema("lists-value", 1, 3, sr.Schema{Type: sr.TypeJSON, Schema: `{"items":{"type":"string"}}`})
	one := `{"topic":"lists","payload":[1` + strings.Repeat(",1", 1000) + `]}`
	r := world.Request(t, b.handler, "POST", "/v1/messages/batch", `{"messages":[`+strings.Repeat(one+",", MaxBatch-1)+one+`]}`)
	if n := strings.Count(r.Text, "got number"); n != 10*MaxBatch {
		t.Errorf("POST of a full batch = %d, %d violations in %d bytes", r.Status, n, len(r.Text))
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages", one); r.Status != 429 {
		t.Errorf("POST beyond the quota = %d %.200s", r.Status, r.Text)
	}
}
