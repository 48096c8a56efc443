package capture

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish/publishtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// memLog is a log in memory.
type memLog struct {
	mu      sync.Mutex
	rows    []memRow
	err     error
	took    time.Duration
	page    int // rows of a page, tailPage if 0
	cut     int // pages of several streams that were not the last
	cutRows int // rows in them of the stream that the page cuts
	queries []memQuery
}

type memRow struct {
	stream  int
	time    gocql.UUID
	event   outbox.Event
	visible time.Time
}

type memQuery struct {
	at      time.Time
	streams map[int]bool
	after   time.Time
	rows    int
}

// Read returns the rows in the order of the streams' values, as the database does.
func (l *memLog) Read(ctx context.Context, streams *cdclog.StreamList, after, until int64, whole bool, known cdclog.KnownRow, each func(*cdclog.Row) error) (more bool, err error) {
	l.mu.Lock()
	q := memQuery{at: time.Now(), streams: make(map[int]bool), after: time.UnixMicro(after)}
	for b := (*streams)[4:]; len(b) > 0; b = b[20:] {
		q.streams[int(binary.BigEndian.Uint64(b[4:]))] = true
	}
	l.queries = append(l.queries, q)
	number := len(l.queries) - 1
	all, fails, took, page := l.rows, l.err, l.took, cmp.Or(l.page, cdclog.PageSize)
	l.mu.Unlock()
	if err := retry.Wait(ctx, took); err != nil {
		return false, err
	}
	if fails != nil {
		return false, fails
	}
	var rows []memRow
	for _, r := range all {
		if w := cdclog.WriteTime(r.time); q.streams[r.stream] && w > after && (until == 0 || w <= until) && !r.visible.After(q.at) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b memRow) int { return cmp.Compare(uint64(a.stream), uint64(b.stream)) })
	if more = !whole && len(rows) >= page; more { // as of a full page that is the last one, too
		rows = rows[:page]
		l.mu.Lock()
		l.cut++
		for _, r := range rows {
			if r.stream == rows[page-1].stream {
				l.cutRows++
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.queries[number].rows = len(rows)
	l.mu.Unlock()
	for _, r := range rows {
		stream, k := memStream(r.stream), cdclog.RowKey{Time: r.time}
		if known(stream, k) {
			continue
		}
		if err := each(&cdclog.Row{RowKey: k, Stream: stream, Event: r.event, Insert: true}); err != nil {
			return false, err
		}
	}
	return more, nil
}

// add writes an event's row now; it becomes visible late by some time.
func (l *memLog) add(stream int, e outbox.Event, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addAt(stream, e, time.Now(), time.Now().Add(late))
}

// addAt adds a row with a write time, which becomes visible at some time. Called locked.
func (l *memLog) addAt(stream int, e outbox.Event, written, visible time.Time) {
	u := gocql.MinTimeUUID(written)
	copy(u[8:], e.ID.UUID().Bytes()[8:])
	r := memRow{stream, u, e, visible}
	i, _ := slices.BinarySearchFunc(l.rows, r, func(a, b memRow) int { return scyllacdc.CompareTimeUUID(a.time, b.time) })
	l.rows = slices.Insert(slices.Clone(l.rows), i, r)
}

// since returns the queries from a time on.
func (l *memLog) since(t time.Time) (out []memQuery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queries {
		if !q.at.Before(t) {
			out = append(out, q)
		}
	}
	return out
}

func (l *memLog) set(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.took = err, took
}

func memStream(i int) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(i)), 1)
}

// tailBench is a tail over a log in memory, of one generation with four streams
// that the sweep has opened.
type tailBench struct {
	*fixture
	log   *memLog
	tail  *Tail
	table *table
	gen   *cdclog.Generation
	// streams are the sweep's, and gens all generations if there are several.
	streams *checkpoint.Streams
	gens    []*cdclog.Generation
	stop    func()
}

func newTailBench(t *testing.T, change func(*settings), prepare ...func(*tailBench)) *tailBench {
	t.Helper()
	b := &tailBench{fixture: setup(t, change), log: new(memLog), table: new(table)}
	start := time.Now().Add(-time.Hour)
	store := relaytest.NewCheckpoints()
	s := checkpoint.NewStreams(store, 100, b.cfg.Logger, prometheus.NewRegistry())
	m := checkpoint.NewManager(store, s, relaytest.Logger(t), nil)
	if err := m.StartGeneration(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	var streams [][]byte
	for i := range 4 {
		streams = append(streams, memStream(i))
		if _, err := m.GetProgress(t.Context(), start, "t", memStream(i)); err != nil {
			t.Fatal(err)
		}
		s.Begin(memStream(i)).Idle(gocql.MinTimeUUID(time.Now().Add(-time.Minute)))
	}
	b.gen = cdclog.NewGeneration(start, streams, func(i int) int64 { return int64(i) })
	b.tail = NewTail(&b.cfg.Config, b.metrics, Input{Table: &outbox.DefaultTable, Generations: b, Lookup: b.table.lookup}, b.log, s, b.publisher)
	b.streams = s
	for _, f := range prepare {
		f(b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.tail.Run(ctx) }()
	b.stop = func() { cancel(); <-done; b.close() }
	return b
}

func (b *tailBench) Times(context.Context) ([]time.Time, error) {
	out := []time.Time{b.gen.Start}
	for _, g := range b.gens {
		out = append(out, g.Start)
	}
	return out, nil
}

func (b *tailBench) Generation(_ context.Context, start time.Time) (*cdclog.Generation, error) {
	for _, g := range b.gens {
		if g.Start.Equal(start) {
			return g, nil
		}
	}
	return b.gen, nil
}

func TestTail_ReadsQuicklyWhereRowsAreAndSeldomElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(10 * time.Second)
		idle := len(b.log.since(time.Now().Add(-5 * time.Second)))
		if idle < 45 || idle > 55 {
			t.Errorf("%d queries in 5 s without rows, want one every %s", idle, b.cfg.TailMaxInterval)
		}
		begin := time.Now()
		for i := range 500 {
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			time.Sleep(4 * time.Millisecond)
		}
		busy, took := len(b.log.since(begin)), time.Since(begin)
		if most := int(took/b.cfg.TailMinInterval) + 2; busy < 200 || busy > most {
			t.Errorf("%d queries in %s with rows, want one every %s", busy, took, b.cfg.TailMinInterval)
		}
		time.Sleep(b.cfg.TailMaxInterval)
		// Most readings go back a little only, and find most rows for the first time.
		if rows, again := relaytest.Count(b.metrics.tailRows), relaytest.Count(b.metrics.tailAgain); rows != 500 || again > 30*rows {
			t.Errorf("read %v rows, and %v again", rows, again)
		}
	})
}

func TestTail_QueriesASlowDatabaseLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		b.log.set(nil, 500*time.Millisecond)
		time.Sleep(time.Minute)
		if n := len(b.log.since(time.Now().Add(-30 * time.Second))); n > 22 {
			t.Errorf("%d queries in 30 s of a database that takes 500 ms each", n)
		}
	})
}

func TestTail_KeepsToItsBudgetWhateverTheHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.TailLimiter = NewTailLimiter(50) })
		defer b.stop()
		time.Sleep(time.Second)
		begin := time.Now()
		for range 10_000 {
			b.tail.Hint([]int64{0, 1, 2, 3, 1 << 60, -5})
			time.Sleep(time.Millisecond)
		}
		if n := len(b.log.since(begin)); n > 510 {
			t.Errorf("%d queries in %s, want at most 50 a second", n, time.Since(begin))
		}
	})
}

// A hint makes the tail read that stream at once, and no other.
func TestTail_ReadsAHintedStreamAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.TailMaxInterval = 10 * time.Second })
		defer b.stop()
		time.Sleep(25 * time.Second)
		for i := range 20 {
			begin := time.Now()
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			b.tail.Hint([]int64{int64(i % 4)})
			time.Sleep(5 * time.Millisecond)
			qs := b.log.since(begin)
			if len(qs) == 0 || len(qs[0].streams) != 1 || !qs[0].streams[i%4] {
				t.Fatalf("queries after the hint of stream %d: %v", i%4, qs)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 20 {
			t.Errorf("found %v of 20 events", n)
		}
		// Rows that hints announce are no reason to read all streams more often.
		if got := b.tail.Status().Interval; got < time.Second {
			t.Errorf("interval = %s, want it long as there is nothing but what hints tell of", got)
		}
	})
}

// A longer interval between readings for hints spares queries, and the rows are found.
func TestTail_GathersHintsForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 50 * time.Millisecond
		b := newTailBench(t, func(c *settings) {
			c.TailMinInterval, c.TailMaxInterval, c.TailHintInterval = interval, interval, interval
		})
		defer b.stop()
		time.Sleep(25 * time.Second)
		begin := time.Now()
		for i := range 2000 {
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			b.tail.Hint([]int64{int64(i % 4)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(interval)
		// Each interval has one reading for hints, and one of all streams.
		if n, most := len(b.log.since(begin)), 2*int(time.Since(begin)/interval)+4; n > most {
			t.Errorf("%d queries in %s, want at most %d", n, time.Since(begin), most)
		}
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 2000 {
			t.Errorf("found %v of 2000 events", n)
		}
	})
}

// Rows that become visible behind others are found too: rows that are a little
// late at once, others within TailOverlap; later ones are the sweep's.
func TestTail_FindsRowsThatAreLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		for i := range 200 {
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			if i%10 == 0 {
				b.log.add(i%4, relaytest.Event(1000+i, 1, "OrderUpdated"), time.Duration(i)*8*time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 220 {
			t.Errorf("found %v of 220 events", n)
		}
	})
}

func TestTail_OutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		b.log.set(errors.New("no connections"), 0)
		begin := time.Now()
		time.Sleep(time.Hour)
		if n := len(b.log.since(begin)); n > 1000 {
			t.Errorf("%d queries in an hour of outage", n)
		}
		if s := b.tail.Status(); s.Err == nil {
			t.Error("status() has no error during the outage")
		}
		b.log.add(1, relaytest.Event(1, 1, "OrderUpdated"), 0)
		b.log.set(nil, 0)
		time.Sleep(10 * time.Second)
		if s := b.tail.Status(); s.Err != nil {
			t.Errorf("status() after the outage: %v", s.Err)
		}
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 1 {
			t.Errorf("found %v of 1 event", n)
		}
		// The sweep reads rows that are older than the confidence window.
		last := b.log.since(begin.Add(time.Hour))
		if len(last) == 0 || time.Since(last[0].after) > b.cfg.ConfidenceWindow+time.Minute {
			t.Errorf("read back to %s", last[0].after)
		}
	})
}

// While too many events are published before the sweep reads them, the tail waits for it.
func TestTail_WaitsForTheSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.publish.Share = new(dedup.Pool).Share(100, 500_000) })
		defer b.stop()
		time.Sleep(time.Second)
		for i := range 200 {
			b.log.add(i%4, relaytest.Event(i, 1, "OrderUpdated"), 0)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		s := b.publisher.State()
		if s.Fresh < 100 || s.Fresh > 110 || !b.tail.Status().Paused {
			t.Errorf("%d events are out before the sweep, status %+v, want 100 and a pause", s.Fresh, b.tail.Status())
		}
		for i := range 100 { // the sweep shows their rows
			v, err := b.publisher.Offer(t.Context(), publish.Offer{Event: relaytest.Event(i, 1, "OrderUpdated"), By: publish.BySweep})
			if err != nil || v != publish.Repeated {
				t.Errorf("offer() = %v, %v, want that it is repeated", v, err)
			}
		}
		time.Sleep(time.Second)
		if n := relaytest.Count(b.published.Found[publish.ByTail]); n != 200 {
			t.Errorf("found %v of 200 events when the sweep had come on", n)
		}
	})
}

// An event that is missing keeps its aggregate, and no other, from going on: for
// as long as it may still come, and then the sweep decides.
func TestTail_WaitsForWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		put := func(aggregate int, seq int64, inTable time.Duration) {
			e := relaytest.Event(aggregate, seq, "OrderUpdated")
			b.table.add(e, time.Now().UnixMicro(), time.Now().Add(inTable))
		}
		put(1, 1, 0)
		put(1, 2, 40*time.Second) // from the batchlog
		put(1, 3, 0)
		put(2, 1, 0)
		put(2, 2, time.Hour)
		put(2, 3, 0)
		for aggregate := 1; aggregate <= 2; aggregate++ {
			for _, seq := range []int64{1, 3} {
				b.log.add(aggregate, relaytest.Event(aggregate, seq, "OrderUpdated"), 0)
				time.Sleep(10 * time.Millisecond)
			}
		}
		for i := range 50 {
			b.log.add(3, relaytest.Event(100+i, 1, "OrderUpdated"), 0)
		}
		time.Sleep(time.Second)
		if got := len(b.consume("OrderUpdated")); got != 52 {
			t.Errorf("%d events are out while two aggregates wait, want 52", got)
		}
		if s := b.tail.Status(); s.Waiting != 2 {
			t.Errorf("%d aggregates wait, want 2", s.Waiting)
		}
		time.Sleep(time.Minute)
		if got := len(b.consume("OrderUpdated")); got != 54 {
			t.Errorf("%d events are out when the first was found, want 54", got)
		}
		time.Sleep(2 * time.Minute)
		if s := b.tail.Status(); s.Waiting != 0 || relaytest.Count(b.metrics.TailLeft) != 1 {
			t.Errorf("%d aggregates wait and %v events are left to the sweep, want 0 and 1", s.Waiting, relaytest.Count(b.metrics.TailLeft))
		}
	})
}

// Where the sweep is now decides nothing: only where this run began to read, the ids
// that it remembers, and the newest id that it forgot.
func TestTailGap_Begin(t *testing.T) {
	t.Parallel()
	row := func(seq, written int64) cdclog.StoredEvent {
		return cdclog.StoredEvent{Event: outbox.Event{ID: outbox.IDFromUUID(relaytest.EventID(int(seq))), Sequence: seq}, Written: written}
	}
	for _, tt := range []struct {
		name      string
		found     []cdclog.StoredEvent
		began     int64
		known     bool
		published int   // the id of this number is in the dedup index
		want      int64 // 0: left to the sweep
	}{
		{name: "written after this run began", found: []cdclog.StoredEvent{row(1, 20), row(2, 30)}, began: 10, known: true, want: 1},
		{name: "the first was published before", found: []cdclog.StoredEvent{row(1, 5), row(2, 30)}, began: 10, known: true, want: 2},
		{name: "one that was missed is before a published one", found: []cdclog.StoredEvent{row(1, 20), row(2, 5), row(3, 30)}, began: 10, known: true},
		{name: "the second is in the dedup index", found: []cdclog.StoredEvent{row(1, 5), row(2, 20), row(3, 30)}, began: 10, known: true, published: 2, want: 3},
		{name: "not there yet", began: 10, known: true, want: 1},
		{name: "the first ones are expired or late", found: []cdclog.StoredEvent{row(3, 30)}, began: 10, known: true},
		{name: "the sweep has not opened the stream", found: []cdclog.StoredEvent{row(1, 5)}, began: 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, nil)
			defer b.close()
			tb := &table{}
			for _, f := range tt.found {
				tb.add(f.Event, f.Written, time.Time{})
			}
			if tt.published > 0 {
				found := dedup.NewFound()
				found.Add(relaytest.EventID(tt.published), gocql.UUID{}, 0)
				b.publisher.Seed(&found, time.Time{}, time.UnixMicro(20))
			}
			g := newTailGaps(&b.cfg.Config, b.publisher, tb.lookup, b.publisher.Swept().Leave)
			w := &tailGap{began: func() (int64, bool) { return tt.began, tt.known }}
			got, err := g.begin(t.Context(), w, 100)
			if got != tt.want || (err != nil) != (tt.want == 0) {
				t.Errorf("%s: begin() = %d, %v, want %d", tt.name, got, err, tt.want)
			}
		})
	}
}

// All rows of an aggregate of which nothing is known are handed on, however many.
func TestTail_HandsOnALongUnknownAggregate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, nil)
		defer b.stop()
		time.Sleep(time.Second)
		const all = 6000
		for seq := int64(1); seq <= all; seq++ {
			b.table.add(relaytest.Event(1, seq, "OrderUpdated"), time.Now().UnixMicro(), time.Time{})
		}
		b.log.add(1, relaytest.Event(1, all, "OrderUpdated"), 0)
		time.Sleep(time.Minute)
		got := drainPublished(b.fixture)
		if len(got) != all || !slices.IsSorted(got) {
			t.Errorf("%d events are published, sorted %v, want %d in order", len(got), slices.IsSorted(got), all)
		}
	})
}

// BenchmarkTail_DecodeAndAdmit takes new rows from the driver's bytes into their
// lanes, and rows that were read before.
func BenchmarkTail_DecodeAndAdmit(b *testing.B) {
	for _, again := range []bool{false, true} {
		name := "new"
		if again {
			name = "again"
		}
		b.Run(name, func(b *testing.B) {
			cfg := publishtest.Config(slog.New(slog.DiscardHandler))
			cfg.Brokers, cfg.MaxInFlightRecords, cfg.MaxInFlightBytes = []string{"127.0.0.1:1"}, 1<<30, 1<<50
			p, err := publish.New(&cfg, publish.NewMetrics(prometheus.NewRegistry()), func(error) {})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			r := cdclog.NewRowReader(&outbox.DefaultTable, nil, func([]byte, cdclog.RowKey) bool { return again })
			e := relaytest.Event(1, 1, "OrderUpdated")
			row := [][]byte{
				memStream(1), make([]byte, 16),
				{0, 0, 0, 0},
				{2},
				e.AggregateID.UUID().Bytes(), binary.BigEndian.AppendUint64(nil, 1), e.ID.UUID().Bytes(), []byte("order"), []byte(e.Type),
				make([]byte, 300), []byte("application/json"), nil, binary.BigEndian.AppendUint64(nil, 1_700_000_000_000), nil,
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				binary.BigEndian.PutUint64(row[4], uint64(i)+1)
				binary.BigEndian.PutUint64(row[6], uint64(i)+1)
				for c, d := range r.Dest() {
					if err := d.(gocql.Unmarshaler).UnmarshalCQL(nil, row[c]); err != nil {
						b.Fatal(err)
					}
				}
				got, fresh := r.Row()
				if !fresh {
					continue
				}
				if v, err := p.Offer(b.Context(), publish.Offer{Event: got.Event, Written: 1, By: publish.ByTail}); err != nil || v != publish.Taken {
					b.Fatal(v, err)
				}
			}
		})
	}
}
