package messages

import (
	"net/http"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// bundle is a service on an in-memory node.
type bundle struct {
	*Service
	node    *scyllafake.Server
	session *gocql.Session
	handler http.Handler
}

func setup(t testing.TB, change ...func(*Config)) *bundle {
	t.Helper()
	node, session := scyllatest.Start(t)
	b := &bundle{node: node, session: session}
	b.Service = b.another(t, change...)
	b.handler = newHandler(b.Service)
	return b
}

// another returns a second service on the same tables. It has timeouts that a
// paused machine does not exceed.
func (b *bundle) another(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	cfg := Config{Topics: []string{"*"}, AttemptTimeout: 20 * time.Second, WriteBudget: time.Minute}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewService(b.session, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// brief sets a short retry budget with long attempts, which no configuration
// allows.
func (b *bundle) brief() { b.cfg.WriteBudget = time.Second }

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so after five minutes: %s", what)
		}
	}
}

func newHandler(s *Service) http.Handler {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Messages", "1")
	cfg.CreateHooks = nil
	NewAPI(s).Register(humago.New(mux, cfg))
	return access.WithRequestIDs(mux)
}

// fault adds a rule for operations of one kind; count 0 means all.
func (b *bundle) fault(count int, e faults.Effect, kinds ...engine.OpKind) (hits func() int) {
	id := b.node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: kinds}, Count: count, Effect: e})
	return func() int { return b.node.Faults().Hits(id) }
}

// events are the outbox's, by id; the CDC log must have each at one time only.
func (b *bundle) events(t testing.TB) map[gocql.UUID]outbox.Event {
	t.Helper()
	out := map[gocql.UUID]outbox.Event{}
	var sc outbox.Scanner
	iter := b.session.Query("SELECT " + outbox.Columns + " FROM outbox_messages").Iter()
	for iter.Scan(sc.Dest()...) {
		e, err := sc.Event()
		if err != nil {
			t.Fatal(err)
		}
		out[e.ID] = e
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	at := map[gocql.UUID]int64{}
	iter = b.session.Query(`SELECT event_id, "cdc$time" FROM outbox_messages_scylla_cdc_log`).Iter()
	var id, when gocql.UUID
	for iter.Scan(&id, &when) {
		if first, again := at[id]; again && first != when.Timestamp() {
			t.Errorf("event %s is in the CDC log at two times", id)
		}
		at[id] = when.Timestamp()
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	if len(at) != len(out) {
		t.Errorf("%d events in the CDC log, %d in the outbox", len(at), len(out))
	}
	return out
}

// waiting are the scheduled messages.
func (b *bundle) waiting(t testing.TB) []View {
	t.Helper()
	page, _, _, err := b.List(t.Context(), schedule.Position{DeliverAt: time.Now().Add(-time.Hour)}, schedule.Filter{Until: time.Now().Add(schedule.MaxAhead)}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return page
}
