package publish

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

// Added partitions move keys, which is logged once.
func TestPublisher_ReportsAddedPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said logtest.Buffer
		b := setup(t, func(c *Config) {
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
			if _, err := b.publisher.producer.Catalog.Admin.CreatePartitions(t.Context(), 4, "OrderUpdated"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // the producer refreshes its metadata
			if said := said.String(); strings.Contains(said, "partitions") {
				t.Errorf("logged before a record was sent to them:\n%s", said)
			}
		}
		if s := said.String(); strings.Count(s, "another number of partitions") != 1 || !strings.Contains(s, "topic=OrderUpdated before=3 partitions=7") {
			t.Errorf("want one line with the topic and both numbers:\n%s", s)
		}
	})
}
