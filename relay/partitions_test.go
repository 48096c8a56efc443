package relay

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Partitions that are added take keys elsewhere, and the log says so once.
func TestPublisher_SaysThatPartitionsWereAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said logtest.Buffer
		b := setupEngine(t, func(c *engineConfig) {
			c.Kafka = append(c.Kafka, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
			c.Logger = slog.New(slog.NewTextHandler(&said, nil))
		})
		defer b.close()
		all := append(relaytest.Events(10, 3, "OrderUpdated"), relaytest.Events(10, 3, "OrderCreated")...)
		for i, e := range all {
			b.submit(e, nil)
			b.drain(time.Minute)
			if i != 5 {
				continue
			}
			if _, err := b.publisher.topics.admin.CreatePartitions(t.Context(), 4, "OrderUpdated"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // the producer learns of it
			if said := said.String(); strings.Contains(said, "partitions") {
				t.Errorf("said before anything went to them:\n%s", said)
			}
		}
		if s := said.String(); strings.Count(s, "another number of partitions") != 1 || !strings.Contains(s, "topic=OrderUpdated before=3 partitions=7") {
			t.Errorf("want one line that names the topic and both numbers:\n%s", s)
		}
	})
}
