package messages

import (
	"net/http"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a service on an in-memory node.
type fixture struct {
	*Service
	world.World
	handler http.Handler
}

func setup(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	b := &fixture{World: world.Start(t)}
	b.Service = b.another(t, change...)
	b.handler = newHandler(b.Service)
	return b
}

// another returns a second service on the same tables. It has timeouts that a
// paused machine does not exceed.
func (b *fixture) another(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	cfg := Config{Topics: []string{"*"}, AttemptTimeout: 20 * time.Second, WriteBudget: time.Minute}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewService(b.Session, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// brief sets a short retry budget with long attempts, which no configuration
// allows.
func (b *fixture) brief() { b.cfg.WriteBudget = time.Second }

func newHandler(s *Service) http.Handler {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Messages", "1")
	cfg.CreateHooks = nil
	NewAPI(s).Register(humago.New(mux, cfg))
	return access.WithRequestIDs(mux)
}

// events are the outbox's, by id; the CDC log must have each at one time only.
func (b *fixture) events(t testing.TB) map[gocql.UUID]outbox.Event {
	t.Helper()
	out := map[gocql.UUID]outbox.Event{}
	for _, e := range b.Outbox(t) {
		out[e.ID.UUID()] = e.Event
	}
	at := map[gocql.UUID]time.Time{}
	for _, row := range b.Log(t) {
		if first, again := at[row.Event]; again && !first.Equal(row.At) {
			t.Errorf("event %s is in the CDC log at two times", row.Event)
		}
		at[row.Event] = row.At
	}
	if len(at) != len(out) {
		t.Errorf("%d events in the CDC log, %d in the outbox", len(at), len(out))
	}
	return out
}

// waiting are the scheduled messages.
func (b *fixture) waiting(t testing.TB) []View {
	t.Helper()
	page, _, _, err := b.List(t.Context(), schedule.Position{DeliverAt: time.Now().Add(-time.Hour)}, schedule.Filter{Until: time.Now().Add(schedule.MaxAhead)}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return page
}
