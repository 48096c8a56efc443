package relay

import (
	"log/slog"
	"sync"
)

// partitionCounts knows how many partitions topics had when a record was last sent to
// them. The publisher's lock does not guard it: partitioners run without. The zero
// value knows none.
type partitionCounts struct {
	log *slog.Logger
	mu  sync.Mutex
	of  map[string]int
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
