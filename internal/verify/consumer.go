package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// FollowFromStart returns the options of a Kafka client for a Consumer that reads topics
// from their start, including new ones.
func FollowFromStart(topics ...string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Topics that the relay creates later must be found soon.
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.UnknownTopicRetries(-1),
		kgo.KeepControlRecords(),
	}
}

// Consumer adds to a ledger the key, headers and place of each record that an ordinary
// consumer receives. It drops payloads immediately.
type Consumer struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string
	ledger *Ledger
	// Aggregates, if not nil, are those whose events are read; other records are foreign. It is set
	// before Run.
	Aggregates map[outbox.ID]bool

	mu    sync.Mutex
	next  map[string]map[int32]int64
	moved chan struct{} // closed and replaced when next or err changed
	err   error
}

// NewConsumer returns a consumer of the topics. The client determines the start offsets.
// With kgo.KeepControlRecords it finds the end of topics with transactions. The caller
// closes the client.
func NewConsumer(client *kgo.Client, l *Ledger, topics ...string) *Consumer {
	return &Consumer{
		client: client, admin: kadm.NewClient(client), topics: topics, ledger: l,
		next: make(map[string]map[int32]int64), moved: make(chan struct{}),
	}
}

// Run consumes until ctx ends, the client is closed, or the ledger fails. Err returns the error.
func (c *Consumer) Run(ctx context.Context) {
	for {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		for _, e := range fetches.Errors() {
			c.fail(fmt.Errorf("read topic %s: %w", e.Topic, e.Err))
		}
		var err error
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 && err == nil {
				err = c.batch(p, now)
			}
		})
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Consumer) batch(p kgo.FetchTopicPartition, now time.Time) error {
	read := topicreader.Batch{Topic: p.Topic, Partition: p.Partition, Next: p.Records[len(p.Records)-1].Offset + 1}
	read.Records = slices.DeleteFunc(p.Records, func(r *kgo.Record) bool { return r.Attrs.IsControl() })
	b := origin{}.batch(&read, c.Aggregates, now)
	if err := c.ledger.addBatch(&b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach(b.Topic, b.Partition, b.Next)
	c.wake()
	return nil
}

// Begin sets where the client begins to read, if not at the start of a topic. It is called before
// Run.
func (c *Consumer) Begin(at kadm.ListedOffsets) {
	at.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			c.reach(o.Topic, o.Partition, o.Offset)
		}
	})
}

func (c *Consumer) reach(topic string, partition int32, next int64) {
	partitions := c.next[topic]
	if partitions == nil {
		partitions = make(map[int32]int64)
		c.next[topic] = partitions
	}
	partitions[partition] = next
}

func (c *Consumer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.wake()
}

// wake makes ToEnd check again. The lock must be held.
func (c *Consumer) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Err returns the last read error.
func (c *Consumer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// ToEnd waits until Run has consumed all records that are in the topics now. Topics that
// do not exist are ignored.
func (c *Consumer) ToEnd(ctx context.Context) error {
	ends, err := c.admin.ListEndOffsets(ctx, c.topics...)
	if err != nil {
		return fmt.Errorf("list the ends of the topics: %w", err)
	}
	for {
		left, moved, err := c.left(ends)
		if left == 0 || err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the topics were not read to their ends, %d records are left: %w", left, context.Cause(ctx)), c.Err())
		}
	}
}

// left returns the number of records before the ends, and a channel that is closed when
// the number may have changed.
func (c *Consumer) left(ends kadm.ListedOffsets) (n int64, moved <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			n += max(0, o.Offset-c.next[o.Topic][o.Partition])
		}
	})
	return n, c.moved, c.err
}
