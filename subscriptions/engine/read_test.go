package engine

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// A partition is paused while its queue is full, and the broker meanwhile keeps a fetch of
// partitions that have no records. Reading continues soon after the queue has room.
func TestEngine_ContinuesBesideIdlePartitions(t *testing.T) {
	if testing.Short() {
		t.Skip("many variants")
	}
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest})
		client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1e6))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var records []*kgo.Record
		for i := range 40_000 {
			records = append(records, event("a", "k"+strconv.Itoa(i), "e"))
		}
		if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		p := w.start()
		var longest time.Duration
		for n := 0; n < len(records); {
			began := time.Now()
			messages := p.receive(subscriptions.MaxMessages, 10*time.Second)
			if len(messages) == 0 {
				t.Fatalf("%d of %d messages", n, len(records))
			}
			longest = max(longest, time.Since(began))
			n += len(messages)
			p.ok(subscriptions.ActionAck, messages...)
		}
		if longest > time.Second {
			t.Errorf("a request waited %s for messages of a partition that was full", longest)
		}
	})
}
