package relay

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
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

// A topic is deleted and created again, and the client learns of it while a broker is slow with
// requests that contain records of it. Records that the broker then writes are not written twice.
func TestRecreated_RequestsAreUnderWay(t *testing.T) {
	t.Parallel()
	testworld.EachBroker(t, func(t *testing.T, v *testworld.BrokerVersion) {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, nil, v.Options()...)
			defer w.close()
			_, stop := w.run()
			for a := range 12 {
				w.write(relaytest.Event(a, 1, "OrderCreated"))
			}
			time.Sleep(time.Minute)
			topics, err := w.admin().ListTopics(t.Context(), "OrderCreated")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.admin().DeleteTopics(t.Context(), "OrderCreated"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.admin().CreateTopic(t.Context(), int32(len(topics["OrderCreated"].Partitions)), 1, nil, "OrderCreated"); err != nil {
				t.Fatal(err)
			}
			var held atomic.Int32
			w.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				if held.Add(1) <= 4 {
					w.cluster.SleepControl(func() { time.Sleep(3 * time.Second) })
				}
				return nil, nil, false
			})
			var all []outbox.Event
			for a := range 12 {
				all = append(all, relaytest.Event(a, 2, "OrderCreated"))
				w.write(all[a])
			}
			for held.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			w.write(relaytest.Event(20, 1, "OrderUpdated")) // the client refreshes its metadata for a topic that is new to it
			time.Sleep(5 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
		})
	})
}
