package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// One of three partitions has no leader for minutes, with many times the events that fit into
// memory and into the limit of dead letters, while the relay runs, or from its start. The others
// keep their rate. When the partition has a leader again, every event is published once and in
// order, also events of aggregates that write to two topics.
func TestFlow_APartitionOverItsLimitWaitsInTheLog(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for name, restart := range map[string]bool{"running": false, "restarted": true} {
		for letters, deadLetters := range map[string]string{"with dead letters": DeadLettersOn, "without": DeadLettersOff} {
			t.Run(name+", "+letters, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
						c.MaxInFlightRecords, c.SpillLimit, c.DeadLetters = 40, 20, deadLetters
					})
					defer w.close()
					const topic = "OrderUpdated"
					r, stop := w.run()
					var all []outbox.Event
					seq := make(map[int]int64)
					write := func(many int) {
						for i := range many {
							aggregate := len(all)
							if i%3 == 0 {
								aggregate = i % 30 // written to again and again
							}
							seq[aggregate]++
							typ := topic
							if i%5 == 0 {
								typ = "Other"
							}
							all = append(all, relaytest.Event(aggregate, seq[aggregate], typ))
							w.write(all[len(all)-1])
							time.Sleep(100 * time.Millisecond)
						}
					}
					write(50)
					if restart {
						if err := stop(); err != nil {
							t.Fatal(err)
						}
					}
					away := w.cluster.Fault(
						kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1},
						kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1},
					)
					if restart {
						r, stop = w.run()
					}
					write(300) // the limits are reached
					for range 3 {
						before := testutil.ToFloat64(r.metrics.Published.WithLabelValues(topic))
						write(300)
						if n := testutil.ToFloat64(r.metrics.Published.WithLabelValues(topic)) - before; n < 100 {
							t.Errorf("%v events are published in half a minute, want most of those of the other partitions", n)
						}
					}
					away.Remove()
					time.Sleep(5 * time.Minute)
					if s := r.Status(); s.DeadLetters > 0 || s.InFlight > 0 {
						t.Errorf("%d dead letters, %d events in flight, after all is well", s.DeadLetters, s.InFlight)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					got := w.consume(topic, "Other")
					relaytest.CheckOrder(t, got, all)
					slices.SortFunc(got, func(a, b relaytest.Delivered) int { return a.At.Compare(b.At) })
					relaytest.CheckTimes(t, got)
				})
			})
		}
	}
}
