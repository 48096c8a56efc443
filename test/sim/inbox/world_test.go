package inbox

import (
	"fmt"
	"io"
	"log"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// statementTimeout is how long a consumer waits for one response.
const statementTimeout = 2 * time.Second

// totals is a consumer's own table. A list shows an effect that was applied twice
// or out of order.
const totals = `CREATE TABLE totals (id text, line bigint, note text, history list<bigint> static, sum bigint static, applied_seq bigint static, PRIMARY KEY (id, line))`

func run(t *testing.T, s *gocql.Session, statements ...string) {
	t.Helper()
	for _, stmt := range statements {
		if err := s.Query(stmt).Exec(); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

func newFence(t *testing.T, s *gocql.Session, cfg inbox.FenceConfig) *inbox.Fence {
	t.Helper()
	f, err := inbox.NewFence(t.Context(), s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// effect appends the event to the history of its aggregate, and adds a row.
func effect(id string, seq int64) func(*gocql.Batch) error {
	return func(b *gocql.Batch) error {
		b.Query("UPDATE totals SET history = history + ? WHERE id = ?", []int64{seq}, id)
		b.Query("INSERT INTO totals (id, line, note) VALUES (?, ?, ?)", id, seq, fmt.Sprint("event ", seq))
		return nil
	}
}

// apply applies an event of totals.
func apply(t *testing.T, f *inbox.Fence, id string, seq int64) (inbox.Outcome, error) {
	t.Helper()
	return f.Apply(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: seq}, effect(id, seq))
}

// mustApply applies an event and checks the outcome.
func mustApply(t *testing.T, f *inbox.Fence, id string, seq int64, want inbox.Outcome) {
	t.Helper()
	if got, err := apply(t, f, id, seq); got != want || err != nil {
		t.Fatalf("event %d of %s = %s, %v; want %s", seq, id, got, err, want)
	}
}

// mustHave checks the effects of an aggregate: each once and in order, and the
// mark that goes with them.
func mustHave(t *testing.T, s *gocql.Session, id string, want ...int64) {
	t.Helper()
	var history, lines []int64
	var mark int64
	// A serial read completes only a decided write.
	err := s.Query("SELECT history, applied_seq FROM totals WHERE id = ? LIMIT 1", id).Consistency(gocql.Serial).Scan(&history, &mark)
	if err != nil && (len(want) > 0 || err != gocql.ErrNotFound) {
		t.Fatal(err)
	}
	iter := s.Query("SELECT line FROM totals WHERE id = ? AND line > 0", id).Iter()
	for n := int64(0); iter.Scan(&n); {
		lines = append(lines, n)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	if len(want) > 0 {
		last = want[len(want)-1]
	}
	if !slices.Equal(history, want) || !slices.Equal(lines, want) || mark != last {
		t.Errorf("%s has the effects %v, the rows %v and the mark %d; want %v once and in order, and %d", id, history, lines, mark, want, last)
	}
}

func numbers(n int64) (list []int64) {
	for i := int64(1); i <= n; i++ {
		list = append(list, i)
	}
	return list
}

// casTimeout lets the next conditional statement time out with a fate.
func casTimeout(w world.World, fate engine.Fate) {
	w.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 1,
		Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1), Fate: fate},
	})
}

// connect opens a session over a line; the caller closes it.
func connect(t *testing.T, node *scyllafake.Server, l *line.Line) *gocql.Session {
	t.Helper()
	c := scyllatest.Cluster(node, schema.DefaultKeyspace)
	c.Dialer = line.Dialer{Line: l, Dial: node.Dial}
	c.NumConns, c.ReconnectInterval = 1, 0
	c.Timeout, c.Consistency = statementTimeout, gocql.LocalQuorum
	c.Logger = log.New(io.Discard, "", 0)
	s, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bubble runs f under virtual time with a node and a session without faults, in a
// keyspace with the given tables. The seed is that of the test.
func bubble(t *testing.T, tables []string, f func(*testing.T, world.World)) {
	t.Helper()
	bubbleWith(t, seeds.Of(t), tables, f)
}

func bubbleWith(t *testing.T, seed uint64, tables []string, f func(*testing.T, world.World)) {
	t.Helper()
	scyllatest.Bubble(t, func(t *testing.T) {
		conf := scyllatest.Config()
		conf.Seed = seed
		node := scyllatest.Node(t, conf)
		s := connect(t, node, &line.Line{})
		run(t, s, tables...)
		f(t, world.World{Node: node, Session: s})
		sessions.Close(s)
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // the driver's timers
	})
}
