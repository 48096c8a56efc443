package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const testTable = "outbox.outbox_messages"

var eve = dlq.Actor{Name: "eve", Reason: "because"}

// fixture is a store and its jobs on a node in memory.
type fixture struct {
	*dlq.Store
	world.World
	jobs  *Store
	clock *clock
}

type clock struct{ at time.Time }

func (c *clock) Now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

// setup returns a fixture with a clock that the test moves.
func setup(t testing.TB, opts ...dlq.Option) *fixture {
	t.Helper()
	b := &fixture{World: world.Start(t), clock: &clock{time.Now().UTC().Truncate(time.Millisecond)}}
	b.reopen(t, opts...)
	return b
}

// setupJobs is setup with the real clock.
func setupJobs(t *testing.T) *fixture {
	t.Helper()
	return setup(t, dlq.WithClock(clocks.System{}))
}

// reopen replaces the fixture's store and jobs.
func (b *fixture) reopen(t testing.TB, opts ...dlq.Option) {
	t.Helper()
	b.Store = b.open(t, opts...)
	b.jobs = New(b.Store)
}

// another is the jobs of a second process on the same tables, or of the same one
// after a crash.
func (b *fixture) another(t testing.TB, opts ...dlq.Option) *Store {
	t.Helper()
	return New(b.open(t, opts...))
}

func (b *fixture) open(t testing.TB, opts ...dlq.Option) *dlq.Store {
	t.Helper()
	s, err := dlq.Open(b.Session, schema.DefaultKeyspace, append([]dlq.Option{dlq.WithClock(b.clock), steady}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// steady tolerates a machine that pauses.
var steady = dlq.WithTimeouts(30*time.Second, 2*time.Minute)

// patient waits for one answer for a second, and outlasts single faults.
var patient = dlq.WithTimeouts(time.Second, 2*time.Minute)

var casFaults = map[string]faults.Effect{
	"decided":                  {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided},
	"undecided":                {Failure: faults.WriteTimeout(faults.CAS, 1, 2)},
	"applied":                  {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply},
	"connection lost, applied": {Disconnect: true, Fate: engine.FateApply},
	"connection lost":          {Disconnect: true},
	"no answer in time":        {Delay: time.Hour},
	"unavailable":              {Failure: faults.Unavailable(0, 1)},
}

// fault adds a rule for operations on one table of a kind; count 0 means all.
func (b *fixture) fault(table string, kind engine.OpKind, skip, count int, e faults.Effect) {
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: table, Kinds: []engine.OpKind{kind}}, Skip: skip, Count: count, Effect: e,
	})
}

// testDeadLetter returns a dead letter of an aggregate with sequence number seq.
func testDeadLetter(a string, seq int64) *dlq.DeadLetter {
	return &dlq.DeadLetter{
		Table: testTable, EventID: gocql.MustRandomUUID(), AggregateID: a, AggregateType: "order", EventType: "OrderCreated", Sequence: seq,
		Payload: []byte(`{"n":1}`), ContentType: "application/json", CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(),
		WrittenAt: 1_700_000_000_123_456, Topic: "OrderCreated", ErrorClass: "record_too_large", ErrorText: "too large",
		Attempts: 1, Strategy: dlq.StrategyImmediate, Metadata: map[string]string{"source": "test", "host": "h1"},
	}
}

func (b *fixture) mustWrite(t testing.TB, l *dlq.DeadLetter) {
	t.Helper()
	if _, err := b.Write(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func (b *fixture) mustRead(t testing.TB, id gocql.UUID) dlq.DeadLetter {
	t.Helper()
	l, err := b.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (b *fixture) mustHistory(t testing.TB, id gocql.UUID) []dlq.Change {
	t.Helper()
	h, err := b.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// writeMany stores dead letters of as many aggregates.
func (b *fixture) writeMany(t testing.TB, n int, f func(i int, l *dlq.DeadLetter)) (ids []gocql.UUID) {
	t.Helper()
	for i := range n {
		l := testDeadLetter(fmt.Sprint("many-", i), 1)
		l.Status = dlq.Suspended
		if f != nil {
			f(i, l)
		}
		b.mustWrite(t, l)
		ids = append(ids, l.EventID)
	}
	return ids
}
