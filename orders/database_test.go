package orders

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// bundle is a service on an in-memory node.
type bundle struct {
	*Service
	node    *scyllafake.Server
	session *gocql.Session
}

// testConfig has timeouts that a paused machine does not exceed.
func testConfig() Config {
	return Config{AttemptTimeout: 10 * time.Second, WriteBudget: time.Minute, RepairAfter: time.Minute}
}

// within sets the attempt timeout for an effect: short for a lost response,
// long for a slow one.
func within(e faults.Effect) func(*Config) {
	return func(c *Config) {
		if e.Delay > 0 {
			c.AttemptTimeout = 2 * time.Second
		}
	}
}

// never is a delay beyond every timeout.
const never = time.Hour

func setup(t testing.TB, change ...func(*Config)) *bundle {
	t.Helper()
	node, session := scyllatest.Start(t)
	b := &bundle{node: node, session: session}
	b.Service = b.another(t, change...)
	return b
}

// another is a second service on the same tables: another process, or the same
// one after a crash.
func (b *bundle) another(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(b.session, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// brief returns a service with a short retry budget and long attempts, which no
// configuration allows.
func (b *bundle) brief(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	s := b.another(t, change...)
	s.cfg.WriteBudget = 600 * time.Millisecond
	return s
}

// fault adds a rule for operations of one kind; count 0 means all.
func (b *bundle) fault(kind engine.OpKind, count int, e faults.Effect) (hits func() int) {
	id := b.node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{kind}}, Count: count, Effect: e})
	return func() int { return b.node.Faults().Hits(id) }
}

// heal removes all faults and waits until connections are back.
func (b *bundle) heal(t testing.TB) {
	t.Helper()
	b.node.Faults().Clear()
	b.eventually(t, "the database is back", func() bool { return b.Ready(t.Context()) == nil })
}

// eventually waits until ok returns true.
func (*bundle) eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not so after five minutes: %s", what)
		}
	}
}

// stored is the stored state of an order.
type stored struct {
	order  *Order
	events []outbox.Event
	// logged are the distinct event ids in the CDC log, in no order.
	logged []gocql.UUID
}

func (b *bundle) stored(t testing.TB, id gocql.UUID) stored {
	t.Helper()
	var out stored
	if o, ok, err := b.store.order(t.Context(), id); err != nil {
		t.Fatal(err)
	} else if ok {
		out.order = &o
	}
	var sc outbox.Scanner
	iter := b.session.Query("SELECT "+outbox.Columns+" FROM outbox_messages WHERE aggregate_id = ?", id).Iter()
	for iter.Scan(sc.Dest()...) {
		e, err := sc.Event()
		if err != nil {
			t.Fatal(err)
		}
		out.events = append(out.events, e)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	iter = b.session.Query("SELECT aggregate_id, event_id FROM outbox_messages_scylla_cdc_log").Iter()
	var aggregate, event gocql.UUID
	for iter.Scan(&aggregate, &event) {
		if aggregate == id && !slices.Contains(out.logged, event) {
			out.logged = append(out.logged, event)
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// logged waits until the CDC log has so many rows of an order's events.
func (b *bundle) logged(t testing.TB, id gocql.UUID, want int) {
	t.Helper()
	b.eventually(t, "the CDC log has all rows of the order", func() bool {
		got := 0
		iter := b.session.Query("SELECT aggregate_id FROM outbox_messages_scylla_cdc_log").Iter()
		for aggregate := (gocql.UUID{}); iter.Scan(&aggregate); {
			if aggregate == id {
				got++
			}
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		return got >= want
	})
}

// mustBe checks that an order is stored with exactly these events, each once,
// and that order, outbox and CDC log agree. Without types the order must not
// exist.
func (b *bundle) mustBe(t testing.TB, id gocql.UUID, types ...string) {
	t.Helper()
	s := b.stored(t, id)
	if len(types) == 0 {
		if s.order != nil || len(s.events) > 0 || len(s.logged) > 0 {
			t.Errorf("order %s: stored %+v, want nothing", id, s)
		}
		return
	}
	var got []string
	for i, e := range s.events {
		got = append(got, e.Type)
		if e.Sequence != int64(i+1) {
			t.Errorf("order %s: event %d has seq %d", id, i+1, e.Sequence)
		}
		if !slices.Contains(s.logged, e.ID) {
			t.Errorf("order %s: event %s is not in the CDC log", id, e.ID)
		}
	}
	if !slices.Equal(got, types) || len(s.logged) != len(types) {
		t.Errorf("order %s: events %q, %d in the CDC log, want %q", id, got, len(s.logged), types)
		return
	}
	last := s.events[len(s.events)-1]
	want, err := fromEvent(&last)
	if err != nil {
		t.Fatal(err)
	}
	if s.order == nil || s.order.Version != want.Version || s.order.Status != want.Status || s.order.EventID != want.EventID ||
		!s.order.Total.Equal(want.Total) || len(s.order.Lines) != len(want.Lines) {
		t.Errorf("order %s: row %+v, last event %+v", id, s.order, want)
	}
	b.mustBeListed(t, &want)
}

// mustBeListed checks that the list of the customer contains the current order.
func (b *bundle) mustBeListed(t testing.TB, o *Order) {
	t.Helper()
	if o.CustomerID == nil {
		return
	}
	found := 0
	for q := (ListQuery{CustomerID: *o.CustomerID, Limit: MaxPageSize}); ; {
		p, err := b.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Orders {
			if l.ID != o.ID {
				continue
			}
			found++
			if l.Version != o.Version || l.Status != o.Status || !l.Total.Equal(o.Total) || l.Lines != len(o.Lines) || !l.PlacedAt.Equal(o.PlacedAt) {
				t.Errorf("order %s is listed as %+v, is %+v", o.ID, l, o)
			}
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
	}
	if found != 1 {
		t.Errorf("order %s is listed %d times", o.ID, found)
	}
}

// cancelled returns o after a cancellation, as the service computes it.
func cancelled(o Order, c Cancellation, me identity) Order {
	at := me.createdAt
	o.Version++
	o.Status, o.EventID, o.UpdatedAt, o.CancelledAt = StatusCancelled, me.eventID, me.createdAt, &at
	o.CreditNote, o.CancelReason = c.CreditNote, c.Reason
	return o
}

// mustCreate creates an order without faults.
func (b *bundle) mustCreate(t testing.TB) Order {
	t.Helper()
	r, err := b.Create(t.Context(), testNewOrder(), WriteOptions{})
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	return r.Order
}

// isUnknown reports whether err is an unknown outcome.
func isUnknown(err error) bool {
	var u *UnavailableError
	return errors.As(err, &u) && u.Unknown
}

// isRefused reports whether err means that nothing was stored.
func isRefused(err error) bool {
	var u *UnavailableError
	return errors.As(err, &u) && !u.Unknown
}
