package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// window is the minimum age of missing events in tests with engines.
const window = 5 * time.Millisecond

// verifier returns a verifier of the outbox table whose relay has published everything.
func (b *fixture) verifier(log *strings.Builder, change ...func(*VerifierConfig)) *Verifier {
	b.t.Helper()
	check := b.verification()
	cfg := VerifierConfig{
		Kafka: check.Kafka, Rate: 1_000_000, Window: window, Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: prometheus.NewRegistry(),
		Tables: []VerifierTable{{
			Scan: check.Scan, Keyspace: "outbox", Table: "outbox_messages", Source: source,
			Relay: new(testRelay),
		}},
	}
	for _, f := range change {
		f(&cfg)
	}
	return NewVerifier(cfg)
}

// results returns the counts of one pass by result.
func (b *fixture) results(v *Verifier) map[string]int {
	b.t.Helper()
	before := make(map[string]float64)
	names := []string{"published", "pending", "unverifiable", "dead_letter", "missing"}
	value := func(name string) float64 {
		return testutil.ToFloat64(v.metrics.rows.WithLabelValues("outbox.outbox_messages", name))
	}
	for _, name := range names {
		before[name] = value(name)
	}
	time.Sleep(2 * window)                                         // the written events are old enough
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute) // a suspect waits for the window
	defer cancel()
	if err := v.verify(ctx, 0); err != nil {
		b.t.Fatal(err)
	}
	out := make(map[string]int)
	for _, name := range names {
		if n := int(value(name) - before[name]); n > 0 {
			out[name] = n
		}
	}
	return out
}

func (b *fixture) check(v *Verifier, want map[string]int, missing ...outbox.Event) {
	b.t.Helper()
	got, ids := fmt.Sprint(b.results(v)), []string{}
	for _, r := range v.Missing() {
		ids = append(ids, r.Event.String())
	}
	names := []string{}
	for _, e := range missing {
		names = append(names, e.ID.String())
	}
	slices.Sort(ids)
	slices.Sort(names)
	if got != fmt.Sprint(want) || !slices.Equal(ids, names) {
		b.t.Errorf("pass found %s, missing %v; want %v, missing %v", got, ids, want, names)
	}
	if n := testutil.ToFloat64(v.metrics.missing.WithLabelValues("outbox.outbox_messages")); int(n) != len(missing) {
		b.t.Errorf("outbox_verify_missing is %v, want %d", n, len(missing))
	}
}

// A pass reports missing events in the topics of the rows, and removes them once they are
// published or their rows are deleted. No other event is missing.
func TestVerifier_FindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log strings.Builder
	v := b.verifier(&log)
	b.check(v, map[string]int{})
	for a := 1; a <= 40; a++ {
		events := []outbox.Event{event(a, 1), event(a, 2), event(a, 3)}
		b.write(events...)
		b.publish(int32(a%3), events...)
	}
	lost, gone := event(50, 1), event(51, 2)
	b.write(lost, event(51, 1), gone, event(51, 3))
	b.publish(0, event(51, 1), event(51, 3))
	never := event(53, 1)
	never.Type = "never-made"
	b.write(never)
	b.check(v, map[string]int{"published": 122, "missing": 3}, lost, gone, never)
	if n := strings.Count(log.String(), "event is missing from its topic"); n != 3 || !strings.Contains(log.String(), "event_id="+lost.ID.String()) {
		t.Errorf("the log names %d events:\n%s", n, log.String())
	}
	b.publish(0, lost)
	if err := b.session.Query("DELETE FROM outbox_messages WHERE aggregate_id = ? AND seq = 2", gone.AggregateID).Exec(); err != nil {
		t.Fatal(err)
	}
	b.check(v, map[string]int{"published": 123, "missing": 1}, never)
	if n := strings.Count(log.String(), "event is missing from its topic"); n != 3 {
		t.Errorf("the log names %d events, want each once:\n%s", n, log.String())
	}
	if at := testutil.ToFloat64(v.metrics.lastPass.WithLabelValues("outbox.outbox_messages")); time.Since(time.UnixMilli(int64(at*1000))) > time.Minute {
		t.Errorf("the last full pass was at %v", at)
	}
}

// Events that the relay has not reached, scheduled events, and events blocked by them are
// pending; events with a dead letter count as such.
func TestVerifier_LeavesAloneWhatIsNotMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log strings.Builder
	relay, dead := &testRelay{passed: new(time.Time)}, event(3, 1)
	v := b.verifier(&log, func(c *VerifierConfig) {
		c.Tables[0].Relay = relay
		c.Tables[0].DeadLetters = deadLettersFunc(func(events []gocql.UUID, each func(DeadLetter)) error {
			if slices.Contains(events, dead.ID.UUID()) {
				each(DeadLetter{Event: dead.ID.UUID(), State: DeadLetterClosed})
			}
			return nil
		})
	})
	if err := v.verify(t.Context(), 0); !errors.Is(err, errNotKnown) {
		t.Errorf("verify() error = %v, want %v", err, errNotKnown)
	}
	b.write(dead)
	*relay.passed = time.Now()
	time.Sleep(2 * time.Millisecond)
	b.write(event(5, 1), event(7, 1))
	b.publish(0, event(7, 1))
	b.check(v, map[string]int{"published": 1, "pending": 1, "dead_letter": 1})
	v.cfg.Window, *relay.passed = time.Hour, time.Now()
	b.check(v, map[string]int{"published": 1, "pending": 2})
}

// The topics of a relay were changed. An event that a former topic may have deleted is not
// missing, and one that the former topic would still contain is. A former topic that is
// empty had no event that is younger than its retention.
func TestVerifier_FormerTopics(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		oldest  time.Duration // age of the oldest record of the former topic, 0 if it is empty
		configs map[string]string
		missing bool
	}{
		{name: "nothing deleted of that age", oldest: 10 * time.Minute, missing: true},
		{name: "something deleted of that age", oldest: time.Second},
		{name: "empty", configs: map[string]string{"retention.ms": "600000"}, missing: true},
		{name: "empty, with a short retention", configs: map[string]string{"retention.ms": "1000"}},
		{name: "empty, and limited by size", configs: map[string]string{"retention.ms": "600000", "retention.bytes": "1000"}},
		{name: "compacted", oldest: 10 * time.Minute, configs: map[string]string{"cleanup.policy": "compact"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			adm := kadm.NewClient(b.client)
			if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "former"); err != nil {
				t.Fatal(err)
			}
			for _, age := range []time.Duration{time.Hour, tt.oldest} {
				r := &kgo.Record{Topic: "former", Timestamp: time.Now().Add(-age), Value: []byte("an event")}
				if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			first := int64(1)
			if tt.oldest == 0 {
				first = 2
			}
			if _, err := adm.DeleteRecords(t.Context(), kadm.Offsets{"former": {0: {Topic: "former", Partition: 0, At: first}}}); err != nil {
				t.Fatal(err)
			}
			for name, value := range tt.configs {
				if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, "former"); err != nil {
					t.Fatal(err)
				}
			}
			lost := event(1, 1)
			b.write(lost)
			v := b.verifier(new(strings.Builder), func(c *VerifierConfig) { c.Tables[0].Former = []string{"former"} })
			if tt.missing {
				b.check(v, map[string]int{"missing": 1}, lost)
			} else {
				b.check(v, map[string]int{"unverifiable": 1})
			}
		})
	}
}

// An event that its topic may have deleted, or compacted away, is not missing.
func TestVerifier_RetentionAndCompaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log strings.Builder
	v := b.verifier(&log)
	adm := kadm.NewClient(b.client)
	b.write(event(1, 1), event(2, 1), event(2, 2)) // 1 goes to topic A, 2 to B
	b.publish(0, event(1, 1), event(2, 1), event(2, 2))
	if _, err := adm.DeleteRecords(t.Context(), kadm.Offsets{"A": {0: {Topic: "A", Partition: 0, At: 1}}}); err != nil {
		t.Fatal(err)
	}
	compact := "compact"
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, "B"); err != nil {
		t.Fatal(err)
	}
	b.check(v, map[string]int{"unverifiable": 3})
}

// A record of an aborted transaction counts as absent.
func TestVerifier_AbortedTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log strings.Builder
	v := b.verifier(&log)
	committed, aborted := event(1, 1), event(3, 1)
	b.write(committed, aborted)
	producer, err := kgo.NewClient(kgo.SeedBrokers(b.seeds...), kgo.TransactionalID("test"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	plain := b.client
	b.client = producer
	for _, e := range []outbox.Event{committed, aborted} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		b.publish(0, e)
		if err := producer.EndTransaction(t.Context(), kgo.TransactionEndTry(e.ID == committed.ID)); err != nil {
			t.Fatal(err)
		}
	}
	b.client = plain
	b.check(v, map[string]int{"published": 1, "missing": 1}, aborted)
}

// Missing events are repaired by the relay; one that was reported as published and is not
// in its topic stays missing. Too many at the same time are not repaired, because a
// setting may be wrong.
func TestVerifier_Repairs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var log strings.Builder
	good, bad := event(1, 1), event(3, 1)
	asked := 0
	v := b.verifier(&log, func(c *VerifierConfig) {
		c.Tables[0].Repair = true
		c.Tables[0].Relay = &testRelay{repair: func(r Row) {
			asked++
			if r.Event == good.ID {
				b.publish(0, good)
			}
		}}
	})
	b.write(good, bad)
	b.check(v, map[string]int{"missing": 2}, bad)
	if n := testutil.ToFloat64(v.metrics.repaired.WithLabelValues("outbox.outbox_messages")); n != 1 || !strings.Contains(log.String(), "reported an event as published that is not in its topic") {
		t.Errorf("%v events were repaired, want 1:\n%s", n, log.String())
	}
	for a := 10; a < 120; a++ {
		b.write(event(a, 1))
	}
	asked = 0
	b.results(v)
	if asked != 0 || !strings.Contains(log.String(), "too many events are missing") {
		t.Errorf("the relay was asked for %d events:\n%s", asked, log.String())
	}
}

// synthetic is a table of n rows and a topic with their events, without engines.
type synthetic struct {
	rows    int
	lost    map[int]bool
	late    map[int]bool // in the topic only when it is read again
	read    int          // how often the topic was
	unknown bool         // how many records there are is known when they are read
	horizon int64
}

// id is the id of event i, and of its aggregate; the tokens of aggregates grow with i.
func (s *synthetic) id(i int) gocql.UUID {
	var id gocql.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(i)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	return id
}

func (s *synthetic) each(more bool, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	s.read++
	for i := range s.rows {
		if s.lost[i] || s.late[i] != more {
			continue
		}
		if err := sink(s.id(i), outbox.IDFromUUID(s.id(i)), 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *synthetic) begin(_ context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	return s.each(false, sink)
}

func (s *synthetic) topic(context.Context, string, func(id gocql.UUID, aggregate outbox.ID, seq int64) error) (int64, error) {
	return s.horizon, nil
}

func (s *synthetic) more(_ context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error {
	return s.each(true, sink)
}

func (s *synthetic) records() int64 {
	if s.unknown {
		return 0
	}
	return int64(s.rows)
}

// pass makes a pass over the table.
func (s *synthetic) pass(t testing.TB, log *strings.Builder, maxEvents int) *pass {
	t.Helper()
	v := NewVerifier(VerifierConfig{
		Window: 150 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)), Registerer: prometheus.NewRegistry(), maxEvents: maxEvents,
		Tables: []VerifierTable{{Scan: &Scan{table: outbox.DefaultTable}, Keyspace: "k", Table: "t", Relay: new(testRelay)}},
	})
	// Sorted by token, as in a database. Four bytes per row contain its place.
	order := make([]uint32, s.rows)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		x, y := token(s.id(int(a))), token(s.id(int(b)))
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return v.newPass(0, s, &syntheticRows{s: s, order: order})
}

// token is that of a row of the table.
func token(id gocql.UUID) int64 { return rows.Token(outbox.DefaultTable, outbox.IDFromUUID(id)) }

// syntheticRows reads the rows of a synthetic table.
type syntheticRows struct {
	s     *synthetic
	order []uint32 // rows by token
	at    int
}

func (r *syntheticRows) read(_ context.Context, after, upTo int64, each func(*Row) error) error {
	for r.at > 0 && token(r.s.id(int(r.order[r.at-1]))) > after {
		r.at-- // a segment that was too large begins again
	}
	for ; r.at < len(r.order); r.at++ {
		id := r.s.id(int(r.order[r.at]))
		if token := token(id); token <= after {
			continue
		} else if token > upTo {
			return nil
		}
		if err := each(&Row{Event: outbox.IDFromUUID(id), Aggregate: outbox.IDFromUUID(id), Seq: 1, Topic: "T", Written: 1}); err != nil {
			return err
		}
	}
	return nil
}

func (r *syntheticRows) exists(context.Context, *Row) (bool, error) { return true, nil }

// hookedRows calls its functions, if not nil, before it reads.
type hookedRows struct {
	rowSource
	beforeRead   func()
	beforeExists func() error
}

func (h *hookedRows) read(ctx context.Context, after, upTo int64, each func(*Row) error) error {
	h.beforeRead()
	return h.rowSource.read(ctx, after, upTo, each)
}

func (h *hookedRows) exists(ctx context.Context, r *Row) (bool, error) {
	if h.beforeExists != nil {
		if err := h.beforeExists(); err != nil {
			return false, err
		}
	}
	return h.rowSource.exists(ctx, r)
}

// testRelay is a relay that has published everything, unless passed is set, and repairs
// events by calling repair.
type testRelay struct {
	passed *time.Time
	repair func(Row)
}

func (r *testRelay) Passed(context.Context) (time.Time, error) {
	if r.passed != nil {
		return *r.passed, nil
	}
	return time.Now(), nil
}

func (r *testRelay) Repair(_ context.Context, missing []Row) (published []gocql.UUID, err error) {
	for _, m := range missing {
		published = append(published, m.Event.UUID())
		r.repair(m)
	}
	return published, nil
}

// deadLettersFunc reads the dead letters of events.
type deadLettersFunc func(events []gocql.UUID, each func(DeadLetter)) error

func (f deadLettersFunc) Read(_ context.Context, _ time.Time, events []gocql.UUID, each func(DeadLetter)) error {
	return f(events, each)
}

// With fewer ids in memory than events, a pass reads the topics more often with the same
// result. An event that is published within a window of its discovery is not missing.
func TestVerifier_Segments(t *testing.T) {
	t.Parallel()
	for i, maxEvents := range []int{100_000, 20_000, 3000, 3000} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			s := &synthetic{rows: 20_000, lost: map[int]bool{7: true, 12_345: true}, late: map[int]bool{3: true, 19_999: true}, unknown: i == 3}
			p := s.pass(t, &log, maxEvents)
			p.rows = &hookedRows{rowSource: p.rows, beforeRead: func() {
				if p.set.Len() > maxEvents {
					t.Errorf("%d ids in memory, want at most %d", p.set.Len(), maxEvents)
				}
			}}
			if err := p.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			var missing []gocql.UUID
			for _, r := range p.v.Missing() {
				missing = append(missing, r.Event.UUID())
			}
			if len(missing) != 2 || !slices.Contains(missing, s.id(7)) || !slices.Contains(missing, s.id(12_345)) || p.checked != 20_000 {
				t.Errorf("with %d ids in memory: missing %v of %d checked", maxEvents, missing, p.checked)
			}
			if many := s.read > 6; many != (maxEvents == 3000) {
				t.Errorf("with %d ids in memory the topic was read %d times", maxEvents, s.read)
			}
		})
	}
}

// A full pass fits in its memory: 300 MB for 10 million rows with VERIFY_ROWS=10000000;
// by default a hundredth of both.
func TestVerifier_Memory(t *testing.T) {
	rows := 200_000
	if testing.Short() {
		rows = 50_000
	}
	if n, err := strconv.Atoi(os.Getenv("VERIFY_ROWS")); err == nil {
		rows = n
	}
	var log strings.Builder
	s := &synthetic{rows: rows, lost: map[int]bool{rows / 2: true}}
	p := s.pass(t, &log, rows/2) // as 10 million and the default
	p.v.cfg.Window = time.Millisecond
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // as a process of the product
	runtime.GC()
	// The heap that the last collection found alive: garbage depends on how busy the machine is.
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	level := func() uint64 { metrics.Read(sample); return sample[0].Value.Uint64() }
	before := level()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				peak.Store(max(peak.Load(), level()))
			}
		}
	}()
	began := time.Now()
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	close(stop)
	<-stopped
	used := 2 * (int64(peak.Load()) - int64(before)) // the heap grows to twice as much before a collection
	t.Logf("%d rows in %s, topics read %d times: %d MB at most, %.1f bytes a row", rows, took.Round(time.Millisecond), s.read, used>>20, float64(used)/float64(rows))
	if limit := int64(30*rows) + 8<<20; used > limit {
		t.Errorf("%d bytes at most, want at most %d", used, limit)
	}
	if len(p.v.Missing()) != 1 {
		t.Errorf("%d are missing, want 1", len(p.v.Missing()))
	}
}
