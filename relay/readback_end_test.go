package relay

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Records that only the leader has are behind the high watermark and become visible
// later. A relay that starts before that reads them back and publishes none again.
func TestReadback_ReadsBeyondTheHighWatermark(t *testing.T) {
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
		end := w.highWatermarksAtZero()
		_, stop := w.run()
		time.Sleep(time.Minute)
		end()
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// highWatermarksAtZero answers every question for the last visible offset with 0.
func (w *world) highWatermarksAtZero() (end func()) {
	var gone atomic.Bool
	w.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		q := req.(*kmsg.ListOffsetsRequest)
		resp := q.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range q.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				if gone.Load() || p.Timestamp != -1 {
					return nil, nil, false
				}
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, 0, 0
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() { gone.Store(true) }
}
