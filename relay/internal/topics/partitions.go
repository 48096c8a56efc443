package topics

import (
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KeyPartitioner is Kafka's default partitioner for records with keys. It retains no keys.
var KeyPartitioner = kgo.StickyKeyPartitioner(nil).ForTopic("")

// Partitions contains the number of partitions each topic had when a record was
// last sent to it, and the gated partitions. It is safe for concurrent use: partitioners
// run without the publisher's lock. Apart from Log the zero value is ready to use.
type Partitions struct {
	Log    *slog.Logger
	mu     sync.Mutex
	of     map[string]int
	record kgo.Record // argument of KeyPartitioner
	// gates contains the partitions that records must not be sent to, by topic.
	gates map[string]topicGates
}

// topicGates contains the partitions of a topic that were not read back. The topic had
// n partitions.
type topicGates struct {
	parts map[int32]struct{} // -1 is all
	n     int
}

// Gate prevents records from being sent to a partition of a topic that has n partitions;
// partition -1 is all of them.
func (c *Partitions) Gate(topic string, part int32, n int) {
	c.Know(topic, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gates == nil {
		c.gates = make(map[string]topicGates)
	}
	g, ok := c.gates[topic]
	if !ok {
		g = topicGates{parts: make(map[int32]struct{}), n: n}
		c.gates[topic] = g
	}
	g.parts[part] = struct{}{}
}

// Shut reports whether records must not be sent to a partition.
func (c *Partitions) Shut(topic string, part int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gates[topic].has(part)
}

func (g topicGates) has(part int32) bool {
	_, all := g.parts[-1]
	_, one := g.parts[part]
	return all || one
}

// Gated reports whether records of the key must not be sent: they belong to a gated
// partition, or did before partitions were added to the topic.
func (c *Partitions) Gated(topic string, key []byte) bool {
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

// Know sets the number of partitions of a topic, unless it is known already.
func (c *Partitions) Know(topic string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]int)
	}
	if _, ok := c.of[topic]; !ok && n > 0 {
		c.of[topic] = n
	}
}

// Count returns the number of partitions of the topic, 0 if it is unknown.
func (c *Partitions) Count(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[topic]
}

// Part returns the partition of the topic that the key belongs to, -1 if the number of
// partitions is unknown.
func (c *Partitions) Part(topic string, key []byte) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[topic]
	if n == 0 {
		return -1
	}
	c.record.Key = key
	return int32(KeyPartitioner.Partition(&c.record, n))
}

// Saw records the number of partitions of a topic and logs a change. After a change a
// key's records may be in another partition than its earlier records, and consumers
// must keep the order among them.
func (c *Partitions) Saw(topic string, n int) {
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
		c.Log.Warn("topic has another number of partitions; consumers may read an aggregate's events out of order",
			"topic", topic, "before", before, "partitions", n)
	}
}
