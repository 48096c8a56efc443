package relay

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A topic is deleted while no relay runs. The next event of an aggregate with many earlier ones
// costs a number of reads that does not grow with them, and all are published again, in order.
func TestProof_ARecreatedTopicIsReadOnceForAnAggregate(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	reads := make(map[int64]int64)
	for _, n := range []int64{20, 200} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
			defer w.close()
			_, stop := w.run()
			var all []outbox.Event
			for seq := range n {
				all = append(all, relaytest.Event(0, seq+1, "OrderCreated"))
				w.write(all[seq])
				time.Sleep(time.Second)
			}
			time.Sleep(time.Hour)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if _, err := w.admin().DeleteTopics(t.Context(), "OrderCreated"); err != nil {
				t.Fatal(err)
			}
			_, stop = w.run()
			time.Sleep(time.Minute)
			var requests atomic.Int64
			w.cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
				w.cluster.KeepControl()
				switch r.(type) {
				case *kmsg.FetchRequest, *kmsg.ListOffsetsRequest, *kmsg.MetadataRequest:
					requests.Add(1)
				}
				return nil, nil, false
			})
			all = append(all, relaytest.Event(0, n+1, "OrderCreated"))
			w.write(all[n])
			time.Sleep(time.Minute)
			reads[n] = requests.Load()
			if err := stop(); err != nil {
				t.Error(err)
			}
			relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
		})
	}
	if reads[200] > reads[20]+20 {
		t.Errorf("20 earlier events cost %d requests, 200 cost %d", reads[20], reads[200])
	}
}
