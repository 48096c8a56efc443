package capture

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// table is an outbox table in which rows turn up at a time.
type table struct {
	rows    []cdclog.StoredEvent
	visible []time.Time
	away    atomic.Bool
	asked   atomic.Int64 // look-ups of several aggregates run concurrently
	// breaks, if not 0, is after how many rows the first look-up breaks off.
	breaks int
	shown  atomic.Int64 // rows that were given out
}

var errAway = errors.New("the database is away")

func (tb *table) lookup(_ context.Context, of *outbox.Event, from, to int64, each func(cdclog.StoredEvent) error) error {
	asked := tb.asked.Add(1)
	if tb.away.Load() {
		return errAway
	}
	for i, e := range tb.rows {
		if e.AggregateID == of.AggregateID && from <= e.Sequence && e.Sequence < to && !time.Now().Before(tb.visible[i]) {
			if tb.breaks > 0 && asked == 1 && i == tb.breaks {
				return errAway
			}
			tb.shown.Add(1)
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tb *table) add(e outbox.Event, written int64, visible time.Time) {
	tb.rows = append(tb.rows, cdclog.StoredEvent{Event: e, Written: written, Err: nil})
	tb.visible = append(tb.visible, visible)
}

func (b *fixture) sequencer(tb *table) *Sequencer {
	s := NewSequencer(b.t.Context(), &b.cfg.Config, b.metrics, b.publisher, tb.lookup)
	s.gapWait, s.retryMin = 5*time.Second, 10*time.Millisecond
	return s
}

// drainPublished drains and returns the sequence numbers of the topic in its order.
func drainPublished(b *fixture) []int64 {
	relaytest.Drain(b.t, b.publisher, time.Hour)
	var out []int64
	for _, d := range b.consume("OrderUpdated") {
		out = append(out, d.Sequence)
	}
	return out
}

func TestSequencer(t *testing.T) {
	t.Parallel()
	type row struct {
		seq, written int64
		late         time.Duration // turns up that much later; -1 never
	}
	const hour = int64(3600e6)
	for _, tt := range []struct {
		name  string
		table []row
		log   []row // the rows that the log shows, in its order
		since int64
		want  []int64
		took  time.Duration // at least
	}{
		{
			name: "in order",
			log:  []row{{1, 10, 0}, {2, 20, 0}, {3, 30, 0}},
			want: []int64{1, 2, 3},
		},
		{
			name:  "a later event has an earlier time",
			table: []row{{1, 20, 0}, {2, 10, 0}},
			log:   []row{{2, 10, 0}, {1, 20, 0}},
			want:  []int64{1, 2},
		},
		{
			name:  "two of a known aggregate changed places",
			table: []row{{1, 10, 0}, {2, 30, 0}, {3, 20, 0}},
			log:   []row{{1, 10, 0}, {3, 20, 0}, {2, 30, 0}},
			want:  []int64{1, 2, 3},
		},
		{
			name:  "goes on after a restart without asking for what was out before",
			table: []row{{1, 10, 0}, {2, 20, 0}, {3, hour + 10, 0}},
			log:   []row{{3, hour + 10, 0}},
			since: hour,
			want:  []int64{3},
		},
		{
			name:  "one that is missing turns up",
			table: []row{{1, 10, 0}, {2, 20, 3 * time.Second}, {3, 30, 0}},
			log:   []row{{1, 10, 0}, {3, 30, 0}},
			want:  []int64{1, 2, 3},
			took:  3 * time.Second,
		},
		{
			name:  "one that is missing never turns up",
			table: []row{{1, 10, 0}, {3, 30, 0}, {4, 40, 0}},
			log:   []row{{1, 10, 0}, {4, 40, 0}},
			want:  []int64{1, 3, 4},
			took:  5 * time.Second,
		},
		{
			name: "one that was given up comes after all",
			log:  []row{{1, 10, 0}, {3, 30, 0}, {2, 20, 0}, {4, 40, 0}, {3, 30, 0}},
			want: []int64{1, 3, 2, 4},
			took: 5 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				begin := time.Now()
				tb := &table{}
				for _, r := range tt.table {
					tb.add(relaytest.Event(1, r.seq, "OrderUpdated"), r.written, begin.Add(r.late))
				}
				s := b.sequencer(tb)
				var settled int
				for _, r := range tt.log {
					if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, r.seq, "OrderUpdated"), Written: r.written, Err: nil}, tt.since, publish.OnSettled(func() { settled++ })); err != nil {
						t.Fatalf("admit(seq %d) error = %v", r.seq, err)
					}
				}
				if took := time.Since(begin); took < tt.took || took > tt.took+2*time.Second {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				if got := drainPublished(b); !slices.Equal(got, tt.want) {
					t.Errorf("published %v, want %v", got, tt.want)
				}
				if settled != len(tt.log) {
					t.Errorf("settled %d of %d rows", settled, len(tt.log))
				}
			})
		})
	}
}

// While the database is away nothing is known of a gap, so nothing passes it.
func TestSequencer_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		tb.add(relaytest.Event(1, 2, "OrderUpdated"), 20, time.Now())
		tb.away.Store(true)
		time.AfterFunc(6*time.Hour, func() { tb.away.Store(false) })
		s := b.sequencer(tb)
		begin := time.Now()
		for _, seq := range []int64{1, 3} {
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: seq * 10, Err: nil}, 0, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 6*time.Hour {
			t.Errorf("passed the gap after %s, before the database was back", took)
		}
		if got, want := drainPublished(b), []int64{1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

func TestSequencer_StopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		tb.away.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := b.sequencer(tb).admit(ctx, cdclog.StoredEvent{Event: relaytest.Event(1, 3, "OrderUpdated"), Written: 30, Err: nil}, 0, publish.OnSettled(func() { t.Error("settled") }))
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errAway) {
			t.Errorf("admit() error = %v, want the end of the context", err)
		}
	})
}

// An aggregate may have more rows than the relay has memory for. They are read as they
// are handed on, and that waits for room.
func TestSequencer_ReadsNoMoreOfAnAggregateThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		known bool // a gap is filled; else the aggregate begins
	}{{"known", true}, {"unknown", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const room, all = 20, 1000
				b := setup(t, func(c *settings) {
					c.MaxInFlightRecords, c.publish.MaxInFlightRecords, c.publish.AttemptTimeout = room, room, time.Hour
				})
				defer b.close()
				tb := &table{}
				for seq := int64(1); seq <= all; seq++ {
					tb.add(relaytest.Event(1, seq, "OrderUpdated"), seq, time.Now())
				}
				s := b.sequencer(tb)
				if tt.known {
					b.submit(relaytest.Event(1, 1, "OrderUpdated"))
					relaytest.Drain(b.t, b.publisher, time.Minute)
				}
				refused := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
				done := make(chan error, 1)
				go func() {
					done <- s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, all, "OrderUpdated"), Written: all, Err: nil}, 0, publish.Settlement{})
				}()
				time.Sleep(time.Second)
				n := tb.shown.Load()
				if !tt.known {
					n -= all - 1 // read once to find where the aggregate continues, and not kept
				}
				if n > room+1 {
					t.Errorf("%d rows were read to be handed on while there is room for %d", n, room)
				}
				refused.Remove()
				if err := <-done; err != nil {
					t.Fatalf("admit() error = %v", err)
				}
				if got := drainPublished(b); len(got) != all || !slices.IsSorted(got) {
					t.Errorf("%d events are published, want %d in order", len(got), all)
				}
			})
		})
	}
}

// The rows of an aggregate that a scan has still to come to are handed on as they are
// read. If that fails they are read again, and published events are not published
// once more.
func TestSequencer_OlderRowsThatBrokeOffGoOutOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *settings) {
			c.RetryMin, c.publish.RetryMin, c.publish.RetryMax = time.Minute, time.Minute, time.Minute
		})
		defer b.close()
		tb := &table{breaks: 5}
		for seq := int64(1); seq <= 9; seq++ {
			tb.add(relaytest.Event(1, seq, "OrderUpdated"), seq, time.Now())
		}
		o := older.New(outbox.DefaultTable, &checkpoint.Scan{Until: time.UnixMicro(9), Ranges: 4}, cdclog.Ring, func() int { return 1 })
		b.publisher.SetOlder(o)
		s := b.sequencer(tb)
		s.retryMin = time.Minute // the events handed on are acknowledged before the second time
		if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, 10, "OrderUpdated"), Written: 10, Err: nil}, 0, publish.Settlement{}); err != nil {
			t.Fatal(err)
		}
		if got, want := drainPublished(b), []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}
