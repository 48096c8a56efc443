//go:build peers

package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/test/peers"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// connect opens a session with a Cassandra node, in a keyspace with tables.
// CASSANDRA_ADDR names a node that runs already; without it one is started.
func connect(t *testing.T, after *func()) *gocql.Session {
	t.Helper()
	addr := os.Getenv("CASSANDRA_ADDR")
	if addr == "" {
		addr = peers.StartCassandra(t, peers.Config{}).Addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	c := gocql.NewCluster(host)
	c.Port, _ = strconv.Atoi(port)
	c.ProtoVersion, c.Timeout, c.ConnectTimeout = 4, 5*time.Minute, time.Minute
	c.Logger = log.New(io.Discard, "", 0)
	open := func() *gocql.Session {
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	admin := open()
	for _, stmt := range []string{
		"DROP KEYSPACE IF EXISTS inbox",
		"CREATE KEYSPACE inbox WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE inbox.totals (id text, line bigint, note text, history list<bigint> static, PRIMARY KEY (id, line))",
		"CREATE TABLE inbox.rows (id text PRIMARY KEY, history list<bigint>, applied_seq bigint)",
		inbox.OnceTable("inbox", "calls"),
	} {
		if err := admin.Query(stmt).Exec(); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	c.Keyspace = "inbox"
	c.BatchObserver = observer{after}
	return open()
}

// observer calls a function once, after the next batch.
type observer struct{ next *func() }

func (o observer) ObserveBatch(context.Context, gocql.ObservedBatch) {
	if f := *o.next; f != nil {
		*o.next = nil
		f()
	}
}

// A real Cassandra gives the same results as the embedded engine.
func TestPeerCassandra_Inbox(t *testing.T) {
	var after func()
	s := connect(t, &after)
	if _, err := inbox.NewFence(t.Context(), s, inbox.FenceConfig{Table: "totals"}); err == nil {
		t.Error("a table without a mark is accepted")
	}
	if err := s.Query("ALTER TABLE inbox.totals ADD applied_seq bigint static").Exec(); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"totals", "rows"} {
		t.Run("results of "+table, func(t *testing.T) { results(t, s, table) })
		t.Run("contention for "+table, func(t *testing.T) { contention(t, s, table) })
	}
	t.Run("epochs", func(t *testing.T) { epochs(t, s) })
	t.Run("conditions", func(t *testing.T) { conditions(t, s) })
	t.Run("partitions without rows", func(t *testing.T) { noRows(t, s) })
	t.Run("a concurrent first event", func(t *testing.T) { concurrentFirst(t, s, &after) })
	t.Run("once", func(t *testing.T) { once(t, s) })
}

func fence(t *testing.T, s *gocql.Session, table string, order inbox.Order) *inbox.Fence {
	t.Helper()
	f, err := inbox.NewFence(t.Context(), s, inbox.FenceConfig{Table: table, Order: order})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func apply(t *testing.T, f *inbox.Fence, table, id string, seq int64) (inbox.Outcome, error) {
	t.Helper()
	return f.Apply(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: seq}, func(b *gocql.Batch) error {
		b.Query("UPDATE "+table+" SET history = history + ? WHERE id = ?", []int64{seq}, id)
		if table == "totals" {
			b.Query("INSERT INTO totals (id, line, note) VALUES (?, ?, 'new')", id, seq)
		}
		return nil
	})
}

func mustHave(t *testing.T, s *gocql.Session, table, id string, want ...int64) {
	t.Helper()
	var history []int64
	var mark int64
	if err := s.Query("SELECT history, applied_seq FROM "+table+" WHERE id = ? LIMIT 1", id).Scan(&history, &mark); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(history, want) || mark != want[len(want)-1] {
		t.Errorf("%s has the effects %v and the mark %d, want %v", id, history, mark, want)
	}
}

func results(t *testing.T, s *gocql.Session, table string) {
	const gap = inbox.Unknown
	for _, c := range []struct {
		order  inbox.Order
		events []int64
		want   []inbox.Outcome
		have   []int64
	}{
		{inbox.FromOne, []int64{2, 1, 1, 3, 2}, []inbox.Outcome{gap, inbox.Applied, inbox.Duplicate, gap, inbox.Applied}, []int64{1, 2}},
		{inbox.FromAny, []int64{5, 4, 6, 8}, []inbox.Outcome{inbox.Applied, inbox.Duplicate, inbox.Applied, gap}, []int64{5, 6}},
		{inbox.Increasing, []int64{3, 7, 5}, []inbox.Outcome{inbox.Applied, inbox.Applied, inbox.Duplicate}, []int64{3, 7}},
	} {
		f, id := fence(t, s, table, c.order), fmt.Sprint("order ", c.order)
		for i, seq := range c.events {
			got, err := apply(t, f, table, id, seq)
			if _, missing := errors.AsType[*inbox.GapError](err); got != c.want[i] || missing != (got == gap) {
				t.Errorf("%s: event %d = %s, %v; want %s", id, seq, got, err, c.want[i])
			}
		}
		mustHave(t, s, table, id, c.have...)
		if err := f.Skip(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: 20}); err != nil {
			t.Error(err)
		}
		if e, err := f.Last(t.Context(), inbox.Key{id}); e.Sequence != 20 || err != nil {
			t.Errorf("Last() = %d, %v; want 20", e.Sequence, err)
		}
	}
}

// The numbers begin again in an epoch. The table has marks without an epoch.
func epochs(t *testing.T, s *gocql.Session) {
	f := fence(t, s, "totals", inbox.FromOne)
	for _, seq := range []int64{1, 2, 3} {
		if got, err := apply(t, f, "totals", "epochs", seq); got != inbox.Applied || err != nil {
			t.Fatalf("event %d = %s, %v", seq, got, err)
		}
	}
	if err := s.Query("ALTER TABLE inbox.totals ADD applied_epoch bigint static").Exec(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		epoch, seq int64
		want       inbox.Outcome
	}{{7, 2, inbox.Applied}, {7, 2, inbox.Duplicate}, {0, 4, inbox.Duplicate}, {7, 3, inbox.Applied}, {9, 1, inbox.Applied}} {
		got, err := fence(t, s, "totals", inbox.FromOne).Apply(t.Context(), inbox.Event{Key: inbox.Key{"epochs"}, Sequence: c.seq, Epoch: c.epoch}, func(b *gocql.Batch) error {
			b.Query("UPDATE totals SET history = history + ? WHERE id = ?", []int64{c.seq}, "epochs")
			return nil
		})
		if got != c.want || err != nil {
			t.Errorf("event %d of epoch %d = %s, %v; want %s", c.seq, c.epoch, got, err, c.want)
		}
	}
	mustHave(t, s, "totals", "epochs", 1, 2, 3, 2, 3, 1)
}

// Several owners of a partition deliver all events.
func contention(t *testing.T, s *gocql.Session, table string) {
	const owners, events = 4, 15
	var all sync.WaitGroup
	for range owners {
		all.Go(func() {
			f := fence(t, s, table, inbox.FromOne)
			for seq := int64(1); seq <= events; seq++ {
				if _, err := apply(t, f, table, "shared", seq); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var want []int64
	for seq := int64(1); seq <= events; seq++ {
		want = append(want, seq)
	}
	mustHave(t, s, table, "shared", want...)
}

// A condition of the effect is another answer than a duplicate, also where Cassandra
// finds no row for it.
func conditions(t *testing.T, s *gocql.Session) {
	f := fence(t, s, "totals", inbox.FromOne)
	try := func(id string, seq int64, stmt string) (inbox.Outcome, error) {
		return f.Apply(t.Context(), inbox.Event{Key: inbox.Key{id}, Sequence: seq}, func(b *gocql.Batch) error { b.Query(stmt); return nil })
	}
	const exists = "UPDATE totals SET note = 'x' WHERE id = 'conditions' AND line = 1 IF EXISTS"
	if got, err := try("conditions", 1, exists); !errors.Is(err, inbox.ErrCondition) {
		t.Errorf("an effect on a missing partition = %s, %v; want ErrCondition", got, err)
	}
	if got, err := apply(t, f, "totals", "conditions", 1); got != inbox.Applied || err != nil {
		t.Fatalf("event 1 = %s, %v", got, err)
	}
	if got, err := try("conditions", 2, "INSERT INTO totals (id, line) VALUES ('conditions', 1) IF NOT EXISTS"); !errors.Is(err, inbox.ErrCondition) {
		t.Errorf("an effect on a row that exists = %s, %v; want ErrCondition", got, err)
	}
	if got, err := try("conditions", 1, exists); got != inbox.Duplicate || err != nil {
		t.Errorf("a duplicate = %s, %v", got, err)
	}
	if got, err := try("conditions", 2, exists); got != inbox.Applied || err != nil {
		t.Errorf("an effect with a satisfied condition = %s, %v", got, err)
	}
	if got, err := try("conditions", 3, "DELETE FROM totals WHERE id = 'conditions' AND line >= 0"); got != inbox.Applied || err != nil {
		t.Errorf("an effect that deletes a range = %s, %v", got, err)
	}
	if got, err := try("conditions", 3, exists); got != inbox.Duplicate || err != nil {
		t.Errorf("the mark after a range was deleted = %s, %v", got, err)
	}
	if got, err := try("conditions", 4, "UPDATE totals SET history = null WHERE id = 'conditions' IF history = null"); !errors.Is(err, inbox.ErrCondition) {
		t.Errorf("an effect that depends on another static column = %s, %v; want ErrCondition", got, err)
	}
	if got, err := try("conditions", 4, "INSERT INTO rows (id) VALUES ('conditions')"); got != inbox.Unknown || err == nil {
		t.Errorf("an effect on another table = %s, %v; want an error", got, err)
	}
}

// Cassandra returns the mark of a partition that has no rows, also where a condition
// of the effect is about a row.
func noRows(t *testing.T, s *gocql.Session) {
	f := fence(t, s, "totals", inbox.FromOne)
	if err := f.Skip(t.Context(), inbox.Event{Key: inbox.Key{"no rows"}, Sequence: 2}); err != nil {
		t.Fatal(err)
	}
	for seq := int64(1); seq <= 4; seq++ {
		got, err := f.Apply(t.Context(), inbox.Event{Key: inbox.Key{"no rows"}, Sequence: seq}, func(b *gocql.Batch) error {
			b.Query("UPDATE totals SET note = 'x' WHERE id = 'no rows' AND line = 1 IF EXISTS")
			return nil
		})
		_, missing := errors.AsType[*inbox.GapError](err)
		if (got == inbox.Duplicate) != (seq <= 2) || errors.Is(err, inbox.ErrCondition) != (seq == 3) || missing != (seq == 4) {
			t.Errorf("event %d after 2 = %s, %v", seq, got, err)
		}
	}
}

// An event that is too early is a gap, also if the missing event is applied while the
// response is under way. Its effect has no condition.
func concurrentFirst(t *testing.T, s *gocql.Session, after *func()) {
	for _, table := range []string{"totals", "rows"} {
		f := fence(t, s, table, inbox.FromOne)
		*after = func() {
			if got, err := apply(t, f, table, "race", 1); got != inbox.Applied || err != nil {
				t.Errorf("%s: event 1 = %s, %v", table, got, err)
			}
		}
		if got, err := apply(t, f, table, "race", 2); errors.Is(err, inbox.ErrCondition) {
			t.Errorf("%s: event 2 = %s, %v", table, got, err)
		}
		if got, err := apply(t, f, table, "race", 2); err != nil {
			t.Errorf("%s: event 2 again = %s, %v", table, got, err)
		}
		mustHave(t, s, table, "race", 1, 2)
	}
}

// A stored result stays after the lease of its effect would have expired.
func once(t *testing.T, s *gocql.Session) {
	o, err := inbox.NewOnce(t.Context(), s, inbox.OnceConfig{Table: "calls", Lease: 4 * time.Second, Keep: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	refused := errors.New("refused")
	do := func(id string, err error) ([]byte, bool, error) {
		return o.Do(t.Context(), id, func(context.Context) ([]byte, error) { runs++; return fmt.Append(nil, "result ", runs), err })
	}
	if _, first, err := do("id", refused); !first || err != refused {
		t.Errorf("an effect that fails = %t, %v", first, err)
	}
	if got, first, err := do("id", nil); string(got) != "result 2" || !first || err != nil {
		t.Errorf("an effect = %q, %t, %v", got, first, err)
	}
	// A lease of a consumer that died. It begins after the effect's, so it ends later.
	if err := s.Query("INSERT INTO calls (id, owner) VALUES ('dead', ?) USING TTL 5", gocql.TimeUUID()).Exec(); err != nil {
		t.Fatal(err)
	}
	busy := 0
	world.Eventually(t, "the lease of a dead consumer expires", func() bool {
		_, first, err := do("dead", nil)
		if _, ok := errors.AsType[*inbox.BusyError](err); ok {
			busy++
		}
		return first && err == nil
	})
	if busy == 0 {
		t.Error("a lease that has not expired was taken over")
	}
	if got, first, err := do("id", nil); string(got) != "result 2" || first || err != nil {
		t.Errorf("a duplicate = %q, %t, %v", got, first, err)
	}
}
