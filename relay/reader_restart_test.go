package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The CDC log is missing for minutes, and the reader of the relay is started again. An event
// that cannot be published keeps the checkpoint of each stream back, and the dedup index has forgotten
// most of the events after it: none is published again. The tablets stay as they are: while an
// aggregate is held, the reader begins no new generation, and reads nothing meanwhile.
func TestReader_StartsAgainWithoutRepetitions(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4, TabletInterval: 24 * time.Hour}, func(c *Config) {
			c.Tail, c.DedupMemory, c.MaxAggregates, c.DeadLetters = TailOff, 40*dedup.BytesPerEvent, 20, DeadLettersOff
		})
		defer w.close()
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		var all []outbox.Event
		write := func(n int, topic string) {
			for range n {
				e := relaytest.Event(len(all), 1, topic)
				w.write(e)
				all = append(all, e)
				time.Sleep(100 * time.Millisecond)
			}
		}
		const held = 20
		write(held, "not a topic!")
		write(300, "OrderUpdated")
		time.Sleep(time.Minute)
		for range 2 {
			before := r.Status().Restarts
			gone := w.db.Faults().MustAdd(faults.Rule{
				Match:  faults.Match{Table: "outbox_messages_scylla_cdc_log"},
				Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Server, "unconfigured table")},
			})
			for range 600 {
				if time.Sleep(time.Second); r.Status().Restarts > before {
					break
				}
			}
			if err := w.db.Faults().Remove(gone); err != nil {
				t.Fatal(err)
			}
			if r.Status().Restarts == before {
				t.Fatal("the reader was not started again")
			}
			time.Sleep(time.Minute)
			write(20, "OrderUpdated")
		}
		time.Sleep(3 * time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.once(all[held:], "OrderUpdated")
	})
}
