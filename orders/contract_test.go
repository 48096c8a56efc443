package orders

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// withSchemas adds a registry to a service. Topic "new" of OrderCreated has schema 1, topic
// OrderUpdated schema 2, topic OrderCancelled none.
func withSchemas(t *testing.T) (fake *srfake.Registry, set func(*Config)) {
	t.Helper()
	fake = srfake.New()
	t.Cleanup(fake.Close)
	fake.SeedSchema("new-value", 1, 1, sr.Schema{Type: sr.TypeJSON, Schema: `{"required":["country","total"],"properties":{"country":{"maxLength":20}}}`})
	fake.SeedSchema("OrderUpdated-value", 1, 2, sr.Schema{Type: sr.TypeJSON, Schema: `{"properties":{"status":{"enum":["placed","confirmed"]}}}`})
	schemas, err := registry.New(fake.URL(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fake, func(c *Config) {
		c.Schemas, c.Publication.Topics = schemas, map[string]string{EventCreated: "new"}
	}
}

// An event that breaks the schema of its topic is refused before anything is stored, also the
// Idempotency-Key. Events that fit have the URL of the schema, events of a topic without one have none.
func TestContract_OfEvents(t *testing.T) {
	t.Parallel()
	fake, set := withSchemas(t)
	b := setup(t, set)
	h := newHandler(t, b.Service, apiserver.Config{})
	refused := func(path, body, want string) {
		t.Helper()
		r := world.Request(t, h, "POST", path, body, "Idempotency-Key", "k"+path)
		r.MustBeProblem(t, 422, problemInvalid)
		if errs := fmt.Sprint(r.Body["errors"]); !strings.Contains(errs, "location:body ") || !strings.Contains(errs, want) || strings.Contains(errs, "Long") {
			t.Errorf("POST %s: errors %s, want %s", path, errs, want)
		}
	}
	refused("/v1/orders", strings.Replace(goodBody, "United Kingdom", strings.Repeat("Long", 6), 1), "its event OrderCreated does not fit schema 1 of new-value: /country: maxLength")
	if all := b.Outbox(t); len(all) > 0 {
		t.Fatalf("a refused order has stored %v", all)
	}
	r := world.Request(t, h, "POST", "/v1/orders", goodBody, "Idempotency-Key", "k/v1/orders")
	if r.Status != 201 {
		t.Fatalf("POST with the key of a refused order = %d %s", r.Status, r.Text)
	}
	id := r.ID(t)
	one := "/v1/orders/" + id.String()
	if r := world.Request(t, h, "POST", one+"/confirm", "{}"); r.Status != 200 {
		t.Fatalf("confirm = %d %s", r.Status, r.Text)
	}
	refused(one+"/ship", `{}`, "its event OrderUpdated does not fit schema 2 of OrderUpdated-value: /status: value must be one of")
	if r := world.Request(t, h, "POST", one+"/cancel", "{}"); r.Status != 200 {
		t.Fatalf("cancel after a refused change = %d %s", r.Status, r.Text)
	}
	b.mustBe(t, id, EventCreated, EventUpdated, EventCancelled)
	for i, want := range []string{fake.URL() + "/schemas/ids/1", fake.URL() + "/schemas/ids/2", ""} {
		if e := b.readStored(t, id).events[i]; e.Headers[outbox.HeaderDataSchema] != want || e.Headers[outbox.HeaderRequestID] == "" {
			t.Errorf("%s has headers %v, want schema %q", e.Type, e.Headers, want)
		}
	}
}

// Without a known schema and without the registry, a request is 503 and stores nothing. Known
// schemas remain in use.
func TestContract_RegistryAway(t *testing.T) {
	t.Parallel()
	fake, set := withSchemas(t)
	b := setup(t, set)
	o := b.mustCreate(t)
	fake.Close()
	b.mustCreate(t)
	before := len(b.Outbox(t))
	r := world.Request(t, newHandler(t, b.Service, apiserver.Config{}), "POST", "/v1/orders/"+o.ID.String()+"/confirm", "{}")
	r.MustBeProblem(t, 503, problemUnavailable)
	if r.Header.Get("Retry-After") == "" || !strings.Contains(r.Text, "The schema registry is unavailable. This request stored nothing") {
		t.Errorf("confirm = %s, Retry-After %q", r.Text, r.Header.Get("Retry-After"))
	}
	if after := len(b.Outbox(t)); after != before {
		t.Errorf("%d events are stored, want %d", after, before)
	}
}

// A request that waits for the registry has no place at the database.
func TestContract_RegistryHangs(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool, 10), make(chan bool)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-release
		http.Error(w, `{"error_code":40401}`, http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	schemas, err := registry.New(srv.URL, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t)
	o := b.mustCreate(t)
	s := b.another(t, func(c *Config) { c.Schemas = schemas })
	done := make(chan error, 2)
	go func() { _, err := s.Create(t.Context(), testNewOrder(), WriteOptions{}); done <- err }()
	go func() { _, err := s.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{}); done <- err }()
	for range cap(done) {
		<-arrived
	}
	if taken := s.Limiter().Occupancy().Taken; taken != 0 {
		t.Errorf("%d places are taken", taken)
	}
	close(release)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The event that completes an order of a failed writer has its schema too, and is written even
// if it no longer fits.
func TestContract_OfARepair(t *testing.T) {
	t.Parallel()
	fake, set := withSchemas(t)
	b := setup(t)
	late := b.another(t, set, func(c *Config) { c.Clock = world.Clock(func() time.Time { return time.Now().Add(time.Hour) }) })
	for country, want := range map[string]string{"Kenya": fake.URL() + "/schemas/ids/1", strings.Repeat("Long", 6): ""} {
		o := testOrder(t)
		o.Country, o.CreatedAt, o.UpdatedAt = country, millis(time.Now()), millis(time.Now())
		if err := b.store.apply(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
		if _, err := late.Get(t.Context(), o.ID); err != nil {
			t.Fatal(err)
		}
		b.mustBe(t, o.ID, EventCreated)
		if got := b.readStored(t, o.ID).events[0].Headers[outbox.HeaderDataSchema]; got != want {
			t.Errorf("the event of an order in %s has schema %q, want %q", country, got, want)
		}
	}
}
