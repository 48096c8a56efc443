package publish

import (
	"bytes"
	"regexp"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The producer itself refuses a record that is too large, and would add the next one to
// a batch that is not sent yet. Later events of the aggregate are therefore not passed
// to the producer before the result.
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
		b.submit(others[0], nil) // creates the topic
		b.drain(time.Minute)
		slow.Store(true)
		for _, e := range others[1:] { // more requests than allowed in flight, so a batch waits
			b.submit(e, nil)
			time.Sleep(10 * time.Millisecond)
		}
		large, small := relaytest.Event(100, 1, "OrderCreated"), relaytest.Event(100, 2, "OrderCreated")
		large.Payload = bytes.Repeat([]byte("x"), 8000)
		large.DeliverAt = time.Now().Add(time.Second) // both are queued when it is due
		b.submit(large, nil)
		b.submit(small, nil)
		time.Sleep(2 * time.Second)
		slow.Store(false)
		b.drain(time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderCreated"), others)
		if holds := b.publisher.Holds(); len(holds) != 1 || holds[0].EventID != large.ID.UUID() {
			t.Errorf("holds() = %+v, want event %s alone", holds, large.ID)
		} else if text := holds[0].Err.Error(); !regexp.MustCompile(`a record of 8\d\d\d bytes before compression, where topic OrderCreated takes batches of at most 4000 \(the relay's max_record_bytes\)`).MatchString(text) {
			t.Errorf("the error is %q, want the record's size and the relay's limit", text)
		}
	})
}
