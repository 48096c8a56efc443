package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// FollowFromStart are the options of a Kafka client for a Consumer that reads
// topics from their beginnings, also those that are made later.
func FollowFromStart(topics ...string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// Topics that the relay makes later are to be found soon.
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.UnknownTopicRetries(-1),
		kgo.KeepControlRecords(),
	}
}

// Batch is what one fetch brought of a partition.
type Batch struct {
	Topic     string
	Partition int32
	// Next is the offset behind the last record.
	Next    int64
	Records []Record
	// Foreign are the records that are no events.
	Foreign int64
}

// Consumer enters into a ledger what an ordinary consumer sees: of each record
// its key, headers and place; payloads are dropped at once.
type Consumer struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string
	ledger *Ledger
	// take, if not nil, is given each batch after the ledger has it.
	take func(Batch) error

	mu    sync.Mutex
	next  map[string]map[int32]int64
	moved chan struct{} // closed and replaced when next or err changed
	err   error
}

// NewConsumer makes a consumer of the topics. The client decides from where it
// reads; with kgo.KeepControlRecords it finds the end of a topic that
// transactions were written to. The caller closes it.
func NewConsumer(client *kgo.Client, l *Ledger, topics ...string) *Consumer {
	return &Consumer{
		client: client, admin: kadm.NewClient(client), topics: topics, ledger: l,
		next: make(map[string]map[int32]int64), moved: make(chan struct{}),
	}
}

// Run consumes until ctx ends, the client is closed, or the ledger or the taker
// of batches fails. What goes wrong is Err.
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
	b := Batch{
		Topic: p.Topic, Partition: p.Partition, Next: p.Records[len(p.Records)-1].Offset + 1,
		Records: make([]Record, 0, len(p.Records)),
	}
	for _, r := range p.Records {
		if r.Attrs.IsControl() {
			continue
		}
		e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		if err != nil {
			b.Foreign++
			continue
		}
		if e.EditOf != "" {
			e.ID = outbox.IDOf(e.EditOf) // an edited dead letter stands for the event in the outbox
		}
		b.Records = append(b.Records, Record{
			Event: e.ID, Aggregate: e.AggregateID, Seq: e.Sequence, Topic: r.Topic, Partition: r.Partition,
			Offset: r.Offset, At: r.Timestamp.UnixMicro(), Seen: now.UnixMicro(),
		})
	}
	if err := c.ledger.AddRecords(b.Records...); err != nil {
		return err
	}
	c.ledger.AddForeign(b.Foreign)
	if c.take != nil {
		if err := c.take(b); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach(b.Topic, b.Partition, b.Next)
	c.wake()
	return nil
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

// wake tells ToEnd to look again. Called locked.
func (c *Consumer) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Err is what last went wrong with reading.
func (c *Consumer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// ToEnd waits until everything that is in the topics now was consumed by Run. A
// topic that does not exist has nothing to consume.
func (c *Consumer) ToEnd(ctx context.Context) error {
	ends, err := c.admin.ListEndOffsets(ctx, c.topics...)
	if err != nil {
		return fmt.Errorf("list the ends of the topics: %w", err)
	}
	return c.to(ctx, ends)
}

// to waits until the offsets are reached.
func (c *Consumer) to(ctx context.Context, ends kadm.ListedOffsets) error {
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

// left is how many records are left to the ends, and a channel that is closed
// when that may have changed.
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
