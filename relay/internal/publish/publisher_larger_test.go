package publish

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The producer refuses a record that is too large by itself, and would take the
// next one into a batch that is not on its way yet: what is behind the record in
// its aggregate is not handed over meanwhile.
func TestPublisher_NothingPassesARecordThatIsTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.Partitions, c.MaxRecordBytes, c.Kafka = 1, 4000, append(c.Kafka, relaytest.NoCompression())
		})
		defer b.close()
		var slow atomic.Bool
		b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			if slow.Load() {
				b.cluster.SleepControl(func() { time.Sleep(3 * time.Second) })
			}
			return nil, nil, false
		})
		others := relaytest.Events(20, 1, "OrderCreated")
		b.submit(others[0], nil) // makes the topic
		b.drain(time.Minute)
		slow.Store(true)
		for _, e := range others[1:] { // more requests than may be under way at once, and so a batch that waits
			b.submit(e, nil)
			time.Sleep(10 * time.Millisecond)
		}
		large, small := relaytest.Event(100, 1, "OrderCreated"), relaytest.Event(100, 2, "OrderCreated")
		large.Payload = bytes.Repeat([]byte("x"), 8000)
		large.DeliverAt = time.Now().Add(time.Second) // both are there when it is its turn
		b.submit(large, nil)
		b.submit(small, nil)
		time.Sleep(2 * time.Second)
		slow.Store(false)
		b.drain(time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderCreated"), others)
		if holds := b.publisher.Holds(); len(holds) != 1 || holds[0].EventID != large.ID {
			t.Errorf("holds() = %+v, want event %s alone", holds, large.ID)
		}
	})
}
