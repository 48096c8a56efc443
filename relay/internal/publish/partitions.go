package publish

import (
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KeyPartitioner is Kafka's own for records with keys. It keeps nothing of a key.
var KeyPartitioner = kgo.StickyKeyPartitioner(nil).ForTopic("")

// partitionCounts knows how many partitions topics had when a record was last sent to
// them. The publisher's lock does not guard it: partitioners run without. The zero
// value knows none.
type partitionCounts struct {
	log    *slog.Logger
	mu     sync.Mutex
	of     map[string]int
	record kgo.Record // to ask byKey with
	// gates are the partitions that records must not be sent to, by topic.
	gates map[string]topicGates
}

// topicGates are the partitions of a topic that were not read back, of which there were n.
type topicGates struct {
	parts map[int32]struct{} // -1 is all
	n     int
}

// gate keeps records from a partition of a topic that has n of them.
func (c *partitionCounts) gate(key Partition, n int) {
	c.know(key.Topic, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gates == nil {
		c.gates = make(map[string]topicGates)
	}
	g, ok := c.gates[key.Topic]
	if !ok {
		g = topicGates{parts: make(map[int32]struct{}), n: n}
		c.gates[key.Topic] = g
	}
	g.parts[key.Part] = struct{}{}
}

// shut reports whether records must not be sent to a partition.
func (c *partitionCounts) shut(topic string, part int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gates[topic].has(part)
}

func (g topicGates) has(part int32) bool {
	_, all := g.parts[-1]
	_, one := g.parts[part]
	return all || one
}

// gated reports whether records of the key must not be sent: they belong to a gated
// partition, or did before the topic got more of them.
func (c *partitionCounts) gated(topic string, key []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.gates[topic]
	if !ok {
		return false
	}
	c.record.Key = key
	for _, n := range [...]int{g.n, c.of[topic]} {
		if n == 0 || g.has(int32(KeyPartitioner.Partition(&c.record, n))) {
			return true
		}
	}
	return false
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
	return int32(KeyPartitioner.Partition(&c.record, n))
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
