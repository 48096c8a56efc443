package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A writer that leaves every second number out delays its own events by seconds at first,
// then hardly at all, and never the ones of others.
func TestAside_NumbersWithHoles(t *testing.T) {
	t.Parallel()
	aggregates, seconds := 3, 240
	if !testing.Short() {
		aggregates = 20
	}
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { wideWindow(c); c.Tail = TailOff })
		defer w.close()
		r, stop := w.run()
		time.Sleep(time.Minute)
		for i := range seconds {
			for a := range aggregates {
				if i%aggregates == a || a == 0 {
					w.write(relaytest.Event(a, int64(2*i+1), "OrderUpdated"))
				}
			}
			time.Sleep(time.Second)
		}
		if s := r.Status(); s.Behind > 3*time.Minute || s.Waiting.Count > aggregates {
			t.Errorf("the sweep is %s behind, and %d aggregates wait", s.Behind.Round(time.Second), s.Waiting.Count)
		}
		time.Sleep(3 * time.Minute)
		if s := r.Status(); s.Waiting.Count != 0 || len(s.Problems) > 0 {
			t.Errorf("%d aggregates wait, problems %q, want none", s.Waiting.Count, s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(w.consume("OrderUpdated")); n < seconds+seconds*(aggregates-1)/aggregates {
			t.Errorf("%d events are published", n)
		}
	})
}

// Many aggregates with holes wait at the same time, each for itself.
func TestAside_ManyAggregates(t *testing.T) {
	t.Parallel()
	many := 1000
	if testing.Short() {
		many = 100
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		s := b.sequencer(&table{})
		p := checkpoint.NewStream(time.Unix(0, 0), []byte("stream"), timeID(1), DefaultMaxStreamBacklog)
		began := time.Now()
		for seq := int64(1); seq <= 5; seq += 2 {
			for a := range many {
				e := cdclog.StoredEvent{Event: relaytest.Event(a, seq, "OrderUpdated"), Written: cdclog.WriteTime(timeID(10 * seq))}
				if err := s.take(t.Context(), p, timeID(10*seq), []cdclog.StoredEvent{e}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stream waited %s for aggregates with holes", took)
		}
		if got := s.aside.state(); got.Count != many || got.Events != 2*many {
			t.Errorf("%d aggregates with %d events wait, want %d and %d", got.Count, got.Events, many, 2*many)
		}
		s.aside.wg.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("two holes each took %s", took)
		}
		b.drain(time.Minute)
		if got := len(b.consume("OrderUpdated")); got != 3*many {
			t.Errorf("%d events are published, want %d", got, 3*many)
		}
		if pos := p.Reached(); !pos.Equal(timeID(50).Time()) {
			t.Errorf("position = %s, want that of the last change", pos)
		}
	})
}

// What waits beside a stream holds its checkpoint back, no later event of the aggregate
// overtakes it, and readiness names it.
func TestAside_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		tb.away.Store(true)
		tb.add(relaytest.Event(1, 2, "OrderUpdated"), 20, time.Now())
		s := b.sequencer(tb)
		p := checkpoint.NewStream(time.Unix(0, 0), []byte("stream"), timeID(1), DefaultMaxStreamBacklog)
		for i, seq := range []int64{1, 3, 4} {
			if err := s.take(t.Context(), p, timeID(int64(10*i+10)), []cdclog.StoredEvent{{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: int64(10*i + 10), Err: nil}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if pos := p.Reached(); !pos.Equal(timeID(10).Time()) {
			t.Errorf("position = %s while an event waits, want that of the change before it", pos)
		}
		status := Status{Waiting: s.aside.state()}
		if got := strings.Join(status.problems(&b.cfg, time.Now(), time.Now()), "\n"); !strings.Contains(got, "before seq 3") || !strings.Contains(got, errAway.Error()) {
			t.Errorf("problems = %q, want the event and the reason", got)
		}
		tb.away.Store(false)
		s.aside.wg.Wait()
		want := []int64{1, 2, 3, 4}
		if got := published(b); len(got) != 4 || got[1] != 2 || got[3] != 4 {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

// timeID is the time of a change, in microseconds since 1970.
func timeID(micro int64) gocql.UUID { return gocql.MinTimeUUID(time.UnixMicro(micro)) }
