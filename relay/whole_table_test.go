package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// One shard takes over from a relay without shards: checkpoints, dead letters and blocked
// aggregates. Each event is published once and in order, and the start reads the topics back to
// the last checkpoint only.
func TestUnsharded_OneShardTakesOver(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for _, tt := range shardEngines {
		for _, killed := range []bool{false, true} {
			for _, tail := range []string{TailOn, TailOff} {
				name := tt.name + " tail " + tail
				if killed {
					name += " killed"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, tt.conf, func(c *Config) {
							c.GenerationDelay, c.IdleCheckpoint, c.Tail, c.MaxRecordBytes = 3*time.Second, 5*time.Second, tail, 2<<10
							if killed {
								c.DrainTimeout = time.Millisecond
							}
						})
						defer w.close()
						takeOverUnsharded(t, w)
					})
				})
			}
		}
	}
}

func takeOverUnsharded(t *testing.T, w *world) {
	all := relaytest.Events(10, 24, "OrderUpdated")
	large := &all[15] // the second event of its aggregate
	large.Payload = make([]byte, 4<<10)
	write := func(events []outbox.Event) {
		t.Helper()
		for _, e := range events {
			w.write(e)
			time.Sleep(300 * time.Millisecond)
		}
	}
	_, stopOld := w.runShard(Shard{})
	write(all[:100])
	time.Sleep(2 * time.Minute)
	write(all[100:150])
	stopOld()
	write(all[150:160])

	began := time.Now()
	w.cfg.MaxRecordBytes = 1 << 20
	r, stop := w.runShard(Shard{Index: 0, Count: 1})
	write(all[160:])
	time.Sleep(time.Minute)
	if from := r.readback.Load().Position; began.Sub(from) > time.Minute {
		t.Errorf("the shard reads back to %s, %s before its start", from, began.Sub(from))
	}
	if s := r.Status(); s.BlockedAggregates != 1 || s.DeadLetters == 0 {
		t.Errorf("%d aggregates are blocked by %d dead letters, want those of the relay without shards", s.BlockedAggregates, s.DeadLetters)
	}
	store, err := dlq.Open(w.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Replay(t.Context(), large.ID.UUID(), dlq.Actor{Name: "ada", Reason: "limit raised"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	stop()
	relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
}
