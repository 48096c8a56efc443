package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An owner pauses between its check of the fence and the write of a dead letter, or the database
// before it executes the statement, for longer than the next owner takes to publish the event. The
// late dead letter publishes the event in no topic again, whichever owner replays it.
func TestFence_ALateDeadLetterPublishesNothingAgain(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	const still = 10 * time.Minute
	for _, how := range []string{"with the owner at work", "after it stopped", "asked for by an operator"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				f := new(relaytest.Fence)
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Fence = f })
				defer w.close()
				_, stop := w.runShard(Shard{Index: 0, Count: 1})
				time.Sleep(5 * time.Second)
				reachable := w.unreachable()
				late := w.db.Faults().MustAdd(faults.Rule{
					Name: "a late dead letter", Match: faults.Match{Table: "dead_letter_queue", Kinds: []engine.OpKind{engine.OpCAS}}, Count: 1,
					Effect: faults.Effect{Delay: still},
				})
				all := relaytest.Events(1, 3, "OrderUpdated")
				w.write(all[0])
				for w.db.Faults().Hits(late) == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				thawed := time.Now().Add(still + time.Second)
				f.Closed.Store(true)
				stop()
				reachable()

				w.cfg.Fence = nil
				_, stop = w.runShard(Shard{Index: 0, Count: 1})
				w.write(all[1])
				time.Sleep(time.Minute)
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all[:2]) // nobody waits for the paused owner
				if how == "after it stopped" {
					stop()
				}
				time.Sleep(time.Until(thawed))
				if how == "asked for by an operator" {
					by := dlq.Actor{Name: "ada", Reason: "it is open"}
					for id := range w.open() {
						if err := w.deadLetters().Replay(t.Context(), id, by); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(10 * time.Second)
				}
				if how != "after it stopped" {
					stop()
				}
				_, stop = w.runShard(Shard{Index: 0, Count: 1})
				w.write(all[2])
				time.Sleep(time.Minute)
				stop()
				got := w.consume("OrderUpdated")
				if len(got) != len(all) {
					t.Errorf("%d records of %d events", len(got), len(all))
				}
				relaytest.CheckOrder(t, got, all)
				l, err := w.deadLetters().Read(t.Context(), all[0].ID.UUID())
				if err != nil || l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed || l.ErrorClass != chains.ClassInterrupted {
					t.Errorf("the letter is %s, of class %s, outcome %+v, %v", l.Status, l.ErrorClass, l.Outcome, err)
				}
			})
		})
	}
}
