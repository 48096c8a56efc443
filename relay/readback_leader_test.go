package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A cluster starts: it answers, and for longer than the relay's patience no partition
// has a leader. A killed relay that starts meanwhile publishes nothing twice.
func TestReadback_WaitsForLeadersHoweverLong(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string][]int32{"of the topic": nil, "of each partition": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				all := relaytest.Events(10, 2, "OrderUpdated")
				go func() {
					for _, e := range all {
						w.write(e)
						time.Sleep(100 * time.Millisecond)
					}
				}()
				w.crashAfter(10 * time.Second)
				away := w.cluster.Fault(kfake.Fault{
					Keys: []kmsg.Key{kmsg.Metadata}, Topic: "OrderUpdated", Partitions: partitions, Err: kerr.LeaderNotAvailable, Count: -1,
				})
				r, stop := w.run()
				time.Sleep(3 * readback.Patience)
				if n := waitedFor(r); n < 1 {
					t.Errorf("outbox_relay_readback_partitions_waiting = %v, want some", n)
				}
				if !r.Status().ReadingBack {
					t.Error("the start went on although it could read no partition")
				}
				if said := strings.Join(r.Status().Problems, "\n"); !strings.Contains(said, "OrderUpdated") {
					t.Errorf("the problems are %q, want the partitions that are waited for", said)
				}
				away.Remove()
				time.Sleep(3 * time.Minute)
				if n := waitedFor(r); n != 0 || len(r.Status().Problems) > 0 {
					t.Errorf("%v partitions waited for, problems %q after all is well", n, r.Status().Problems)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
			})
		})
	}
}

// waitedFor is how many partitions a metric names that are waited for.
func waitedFor(r *Relay) int { return testutil.CollectAndCount(r.metrics.readBack.Waiting) }
