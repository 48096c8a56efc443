package orders

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a service on an in-memory node.
type fixture struct {
	*Service
	world.World
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

func setup(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	b := &fixture{World: world.Start(t)}
	b.Service = b.another(t, change...)
	return b
}

// another is a second service on the same tables: another process, or the same
// one after a crash.
func (b *fixture) another(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(b.Session, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// brief returns a service with a short retry budget and long attempts, which no
// configuration allows.
func (b *fixture) brief(t testing.TB, change ...func(*Config)) *Service {
	t.Helper()
	s := b.another(t, change...)
	s.cfg.WriteBudget = 600 * time.Millisecond
	var err error
	if s.appender, err = s.newAppender(s.cfg.WriteBudget); err != nil {
		t.Fatal(err)
	}
	return s
}

// appendEvent makes one attempt of the conditional insert of an event, as a process does that
// dies after it.
func (b *fixture) appendEvent(t testing.TB, e outbox.Event) (applied bool, err error) {
	t.Helper()
	stmt, args, err := outbox.DefaultTable.InsertIfNotExists(e)
	if err != nil {
		t.Fatal(err)
	}
	return b.store.query(t.Context(), stmt, args...).MapScanCAS(map[string]any{})
}

// fault is Fault for operations of one kind.
func (b *fixture) fault(kind engine.OpKind, count int, e faults.Effect) (hits func() int) {
	return b.Fault(count, e, kind)
}

// heal removes all faults and waits until connections are back.
func (b *fixture) heal(t testing.TB) {
	t.Helper()
	b.Node.Faults().Clear()
	world.Eventually(t, "the database is back", func() bool { return b.Ready(t.Context()) == nil })
}

// stored is the stored state of an order.
type stored struct {
	order  *Order
	events []outbox.Event
	// logged are the distinct event ids in the CDC log, in no order.
	logged []gocql.UUID
}

func (b *fixture) readStored(t testing.TB, id gocql.UUID) stored {
	t.Helper()
	var out stored
	var err error
	if out.order, err = b.store.order(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.Outbox(t, id) {
		out.events = append(out.events, e.Event)
	}
	for _, row := range b.Log(t) {
		if row.Aggregate == id && !slices.Contains(out.logged, row.Event) {
			out.logged = append(out.logged, row.Event)
		}
	}
	return out
}

// awaitLogged waits until the CDC log has so many rows of an order's events.
func (b *fixture) awaitLogged(t testing.TB, id gocql.UUID, want int) {
	t.Helper()
	world.Eventually(t, "the CDC log has all rows of the order", func() bool {
		got := 0
		for _, row := range b.Log(t) {
			if row.Aggregate == id {
				got++
			}
		}
		return got >= want
	})
}

// mustBe checks that an order is stored with exactly these events, each once,
// and that order, outbox and CDC log agree. Without types the order must not
// exist.
func (b *fixture) mustBe(t testing.TB, id gocql.UUID, types ...string) {
	t.Helper()
	s := b.readStored(t, id)
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
		if !slices.Contains(s.logged, e.ID.UUID()) {
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
func (b *fixture) mustBeListed(t testing.TB, o *Order) {
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

// cancelOrder returns o after a cancellation, as the service computes it.
func cancelOrder(o Order, c Cancellation, me identity) Order {
	at := me.createdAt
	o.Version++
	o.Status, o.EventID, o.UpdatedAt, o.CancelledAt = StatusCancelled, me.eventID, me.createdAt, &at
	o.CreditNote, o.CancelReason = c.CreditNote, c.Reason
	return o
}

// mustCreate creates an order without faults.
func (b *fixture) mustCreate(t testing.TB) Order {
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
