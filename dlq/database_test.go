package dlq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const testTable = "outbox.outbox_messages"

// fixture is a store on a node in memory, with a clock that tests move.
type fixture struct {
	*Store
	world.World
	clock *clock
}

type clock struct {
	at   time.Time
	node *faults.Clock
}

func (c *clock) Now() time.Time { return c.at }

// advance moves the clock, and that of the database: claims end by both.
func (c *clock) advance(d time.Duration) {
	c.at = c.at.Add(d)
	c.node.SetSkew(c.node.Skew() + d)
}

func setup(t testing.TB, opts ...Option) *fixture {
	t.Helper()
	w := world.Start(t)
	b := &fixture{World: w, clock: &clock{time.Now().UTC().Truncate(time.Millisecond), w.Node.Faults().Clock()}}
	b.Store = b.another(t, opts...)
	return b
}

// another is a second store on the same tables: another process, or the same one
// after a crash.
func (b *fixture) another(t testing.TB, opts ...Option) *Store {
	t.Helper()
	s, err := Open(b.Session, schema.DefaultKeyspace, append([]Option{WithClock(b.clock), steady}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// steady tolerates a machine that pauses.
var steady = WithTimeouts(30*time.Second, 2*time.Minute)

// patient waits for an answer no longer than a test may, and outlasts single faults.
var patient = WithTimeouts(time.Second, 2*time.Minute)

// counts are the numbers of statements that a fault hits; 0 means all, until the
// process crashes.
func counts() []int {
	if testing.Short() {
		return []int{1}
	}
	return []int{1, 0}
}

// fault adds a rule for operations on one table of a kind; count 0 means all.
func (b *fixture) fault(table string, kind engine.OpKind, skip, count int, e faults.Effect) (hits func() int) {
	id := b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: table, Kinds: []engine.OpKind{kind}}, Skip: skip, Count: count, Effect: e,
	})
	return func() int { return b.Node.Faults().Hits(id) }
}

// trouble adds a fault and returns the context of the process: with count 0 the process
// crashes at the second statement.
func (b *fixture) trouble(t testing.TB, table string, kind engine.OpKind, count int, e faults.Effect) (life context.Context, hits func() int) {
	life, die := context.WithCancel(t.Context())
	t.Cleanup(die)
	seen := 0
	id := b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: table, Kinds: []engine.OpKind{kind}, Func: func(op engine.Op) bool {
			if seen++; count == 0 && seen == 2 {
				die()
			}
			return true
		}},
		Count: count, Effect: e,
	})
	return life, func() int { return b.Node.Faults().Hits(id) }
}

// testDeadLetter returns a dead letter of aggregate a with sequence number seq.
func testDeadLetter(a string, seq int64) *DeadLetter {
	return &DeadLetter{
		Table: testTable, EventID: gocql.MustRandomUUID(), AggregateID: a, AggregateType: "order", EventType: "OrderCreated", Sequence: seq,
		Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{"traceparent": "00-1"},
		CreatedAt: time.UnixMilli(1_700_000_000_123).UTC(), WrittenAt: 1_700_000_000_123_456, Topic: "OrderCreated",
		ErrorClass: "record_too_large", ErrorCode: "MESSAGE_TOO_LARGE", ErrorText: "too large", ErrorChain: []string{"produce", "too large"},
		Attempts: 1, Strategy: StrategyImmediate, Metadata: map[string]string{"source": "test", "host": "h1"},
	}
}

func (b *fixture) mustWrite(t testing.TB, l *DeadLetter) {
	t.Helper()
	if _, err := b.Write(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func (b *fixture) mustRead(t testing.TB, id gocql.UUID) DeadLetter {
	t.Helper()
	l, err := b.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (b *fixture) listChains(t testing.TB, table string) []ChainEntry {
	t.Helper()
	var out []ChainEntry
	if err := b.Chains(t.Context(), table, func(e ChainEntry) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// writeMany stores dead letters of as many aggregates.
func (b *fixture) writeMany(t testing.TB, n int, f func(i int, l *DeadLetter)) (ids []gocql.UUID) {
	t.Helper()
	for i := range n {
		l := testDeadLetter(fmt.Sprint("many-", i), 1)
		l.Status = Suspended
		if f != nil {
			f(i, l)
		}
		b.mustWrite(t, l)
		ids = append(ids, l.EventID)
	}
	return ids
}
