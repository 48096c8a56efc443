package relay

import (
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// keyPartitioner is Kafka's own for records with keys. It keeps nothing of a key.
var keyPartitioner = kgo.StickyKeyPartitioner(nil).ForTopic("")

// partitionCounts knows how many partitions topics had when a record was last sent to
// them. The publisher's lock does not guard it: partitioners run without. The zero
// value knows none.
type partitionCounts struct {
	log    *slog.Logger
	mu     sync.Mutex
	of     map[string]int
	record kgo.Record // to ask byKey with
}

// know notes how many partitions a topic has, unless records tell already.
func (c *partitionCounts) know(topic string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]int)
	}
	if _, ok := c.of[topic]; !ok && n > 0 {
		c.of[topic] = n
	}
}

// part is the partition of the topic that the key belongs to, -1 if it is not known
// how many there are.
func (c *partitionCounts) part(topic string, key []byte) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[topic]
	if n == 0 {
		return -1
	}
	c.record.Key = key
	return int32(keyPartitioner.Partition(&c.record, n))
}

// saw says in the log when a topic has another number of partitions than before: from
// there on a key's records may be in another partition than its earlier ones, and the
// order among them is for consumers to keep.
func (c *partitionCounts) saw(topic string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.of[topic]
	if before == n {
		return
	}
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[topic] = n
	if ok {
		c.log.Warn("a topic has another number of partitions: later events of an aggregate may be in another one than its earlier events, and consumers that have not read those yet may see them out of order",
			"topic", topic, "before", before, "partitions", n)
	}
}
