package messages

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// bundle is a service on a node in memory.
type bundle struct {
	*Service
	node    *scyllafake.Server
	session *gocql.Session
	handler http.Handler
}

func setup(t testing.TB, change ...func(*Config)) *bundle {
	t.Helper()
	node, err := scyllafake.Start(scyllafake.Config{Tokens: 4, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	admin := connect(t, node, "")
	if err := schema.Migrate(t.Context(), admin, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	b := &bundle{node: node, session: connect(t, node, schema.DefaultKeyspace)}
	cfg := Config{AttemptTimeout: 5 * time.Second, WriteBudget: 5 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	if b.Service, err = NewService(b.session, cfg); err != nil {
		t.Fatal(err)
	}
	b.handler = newHandler(b.Service)
	return b
}

func newHandler(s *Service) http.Handler {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Messages", "1")
	cfg.CreateHooks = nil
	NewAPI(s).Register(humago.New(mux, cfg))
	return mux
}

// dialer reaches a node over its in-memory listener.
type dialer struct{ node *scyllafake.Server }

func (d dialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return d.node.Dial(ctx)
}

func connect(t testing.TB, node *scyllafake.Server, keyspace string) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster("127.0.0.1")
	c.Dialer = dialer{node}
	c.ProtoVersion = 4
	c.Timeout = 10 * time.Second
	c.Keyspace = keyspace
	c.ReconnectInterval = 100 * time.Millisecond
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 100, Interval: 20 * time.Millisecond}
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
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
