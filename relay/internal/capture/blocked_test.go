package capture

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Many aggregates with holes wait at the same time, each for itself.
func TestBlocked_ManyAggregates(t *testing.T) {
	t.Parallel()
	many := 1000
	if testing.Short() {
		many = 100
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		s := b.sequencer(&table{})
		p := checkpoint.NewStream(time.Unix(0, 0), []byte("stream"), timeID(1), maxStreamBacklog)
		pages := NewSweptPages(s, p, nil)
		began := time.Now()
		for seq := int64(1); seq <= 5; seq += 2 {
			for a := range many {
				e := cdclog.StoredEvent{Event: relaytest.Event(a, seq, "OrderUpdated"), Written: cdclog.WriteTime(timeID(10 * seq))}
				if err := pages.Add(t.Context(), timeID(10*seq), []cdclog.StoredEvent{e}); err != nil {
					t.Fatal(err)
				}
			}
		}
		pages.Submit()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stream waited %s for aggregates with holes", took)
		}
		if got := s.blocked.state(); got.Count != many || got.Events != 2*many {
			t.Errorf("%d aggregates with %d events wait, want %d and %d", got.Count, got.Events, many, 2*many)
		}
		s.blocked.wg.Wait()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("two holes each took %s", took)
		}
		relaytest.Drain(b.t, b.publisher, time.Minute)
		if got := len(b.consume("OrderUpdated")); got != 3*many {
			t.Errorf("%d events are published, want %d", got, 3*many)
		}
		if pos := p.Reached(); !pos.Equal(timeID(50).Time()) {
			t.Errorf("position = %s, want that of the last change", pos)
		}
	})
}

// What waits beside a stream holds its checkpoint back, no later event of the aggregate
// overtakes it, and the sequencer reports it.
func TestBlocked_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		tb.away.Store(true)
		tb.add(relaytest.Event(1, 2, "OrderUpdated"), 20, time.Now())
		s := b.sequencer(tb)
		p := checkpoint.NewStream(time.Unix(0, 0), []byte("stream"), timeID(1), maxStreamBacklog)
		pages := NewSweptPages(s, p, nil)
		for i, seq := range []int64{1, 3, 4} {
			if err := pages.Add(t.Context(), timeID(int64(10*i+10)), []cdclog.StoredEvent{{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: int64(10*i + 10), Err: nil}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if pos := p.Reached(); !pos.Equal(timeID(10).Time()) {
			t.Errorf("position = %s while an event waits, want that of the change before it", pos)
		}
		if got := s.Waiting(); got.Oldest.Sequence != 3 || !errors.Is(got.Err, errAway) {
			t.Errorf("Waiting() = %+v, want the event and the reason", got)
		}
		tb.away.Store(false)
		s.blocked.wg.Wait()
		want := []int64{1, 2, 3, 4}
		if got := drainPublished(b); len(got) != 4 || got[1] != 2 || got[3] != 4 {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

// timeID is the time of a change, in microseconds since 1970.
func timeID(micro int64) gocql.UUID { return gocql.MinTimeUUID(time.UnixMicro(micro)) }
