package publish

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// lane is the ordered queue of one aggregate: first the events that the producer
// has, then the waiting ones. Publisher.mu guards it.
type lane struct {
	id   gocql.UUID
	line dedup.Line

	items       []*item
	outstanding int       // items with the producer
	part        Partition // of the outstanding items
	// partition is the partition of the outstanding items, -1 without any. The
	// partitioner reads it with and without Publisher.mu.
	partition atomic.Int32
	// turned means that the partitioner rejected a record, because it would begin
	// another batch. Nothing is sent until all outstanding records are back.
	turned atomic.Bool

	// failed is the error of an item that the producer returned. Nothing is sent until
	// all outstanding items are back, so that they are sent again in order.
	failed error
	// ctx is the context of the outstanding records.
	ctx laneContext
	// paused means that a timer or a topic lookup resumes the lane.
	paused bool
	// alone means that the outstanding item may be larger than the producer accepts:
	// the producer would fail it alone and publish the items after it.
	alone bool
	// suspect means that the broker refused the front item. It is sent alone, because
	// a refusal fails everything that is buffered for the partition.
	suspect bool
	probed  Partition // the partition that the lane probes or probed last
	hold    *Hold
	// gated means that the first queued item waits for a partition that was not read
	// back.
	gated bool
	// writing means that a dead letter of the lane is being written.
	writing bool
	// ended receives the end of a replay; nil for an aggregate's own lane.
	ended func(replayEnd)
	// claimed reports whether the replayed dead letter is still claimed; set with ended.
	claimed func() bool
}

type itemState uint8

const (
	queued itemState = iota
	sent
	acked
)

// item is an event that is not acknowledged yet.
type item struct {
	event    outbox.Event
	written  int64 // write time in microseconds, 0 if unknown
	topic    string
	part     Partition // the partition that it was sent to
	topicErr error
	bytes    int64
	state    itemState
	by       Source
	buried   int32 // attempts before it became the replayed dead letter
	attempts int
	handed   time.Time // when the producer received it
	// shown means that the sweep reader has read the event.
	shown bool
	// scanned means that a backfill offered the event: the CDC log never contains it.
	scanned bool
	settled []func()
	call    *call
	// death is the reason why the event becomes a dead letter, nil if it does not.
	death *death
	one   [1]func() // usual storage of settled
}

func newLane(id gocql.UUID, known dedup.Line) *lane {
	l := &lane{id: id, line: known}
	l.ctx.Context, l.ctx.lane = context.Background(), l
	l.partition.Store(-1)
	return l
}

// firstQueued returns the first item that the producer does not have, or nil.
func (l *lane) firstQueued() *item {
	for _, it := range l.items {
		if it.state == queued {
			return it
		}
	}
	return nil
}

// pop removes the acknowledged items from the front.
func (l *lane) pop() {
	n := 0
	for n < len(l.items) && l.items[n].state == acked {
		n++
	}
	l.items = slices.Delete(l.items, 0, n)
}

// blocked reports whether the lane waits for an operator, for its delivery time, or for
// a partition that was not read back.
func (l *lane) blocked(now time.Time) bool {
	if l.hold != nil || l.gated && l.outstanding == 0 {
		return true
	}
	it := l.firstQueued()
	return it != nil && l.outstanding == 0 && it.event.DeliverAt.After(now)
}

type laneKey struct{}

// laneContext is the context of a lane's outstanding records. It ends after giveUp, but
// only if none of these records may have been written to a broker. The client alone
// would fail more records: it forgets that a batch was written when the batch was
// acknowledged after an unacknowledged one, and when a later attempt is refused.
// laneContext is safe for concurrent use.
type laneContext struct {
	context.Context
	lane   *lane
	p      *Publisher
	handed atomic.Uint64 // the number of the first record
	given  atomic.Bool
}

// errGivenUp is the error of a record that the producer returned after giveUp.
var errGivenUp = errors.New("given up by the relay")

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin resets the context before a record is produced while none is outstanding.
func (c *laneContext) begin(p *Publisher) {
	c.p = p
	c.given.Store(false)
	c.handed.Store(p.handed.Load())
}

// giveUp asks the producer to return the records.
func (c *laneContext) giveUp() { c.given.Store(true) }

func (c *laneContext) unsure() bool { return c.p.wired.Load() >= c.handed.Load() }

// Done returns a closed channel if the producer shall and may return the records, else
// nil. The client calls it with every attempt.
func (c *laneContext) Done() <-chan struct{} {
	if c.Err() != nil {
		return closed
	}
	return nil
}

// Err returns errGivenUp if Done is closed, else nil.
func (c *laneContext) Err() error {
	if c.given.Load() && !c.unsure() {
		return errGivenUp
	}
	return nil
}

// Value returns the lane for laneKey; the partitioner uses it.
func (c *laneContext) Value(key any) any {
	if _, ok := key.(laneKey); ok {
		return c.lane
	}
	return nil
}

// partitioner returns Kafka's partitioner for records with keys, with two exceptions:
//
//   - All outstanding records of an aggregate use one partition. A topic that gets more
//     partitions therefore does not split them.
//   - All outstanding records of an aggregate are in one batch. The broker refuses whole
//     batches, and the client sends the next batch before the relay learns of a refusal.
//     The partitioner therefore rejects a record that would begin another batch, and the
//     later records of its lane, until no record of the aggregate is outstanding.
//
// It reports the number of partitions of each topic to counts.
func partitioner(counts *topics.Partitions) kgo.Partitioner {
	return lanes{kgo.StickyKeyPartitioner(nil), counts}
}

type lanes struct {
	byKey  kgo.Partitioner
	counts *topics.Partitions
}

// ForTopic implements kgo.Partitioner.
func (p lanes) ForTopic(topic string) kgo.TopicPartitioner {
	return &lanesOfTopic{byKey: p.byKey.ForTopic(topic), topic: topic, counts: p.counts}
}

// lanesOfTopic is the partitioner of one topic. The client does not call it
// concurrently.
type lanesOfTopic struct {
	byKey      kgo.TopicPartitioner
	topic      string
	counts     *topics.Partitions
	partitions int // last number reported to counts
	// follows means that earlier records of the last record's lane are outstanding,
	// begins that the last record would be the first of a batch.
	follows, begins bool
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (*lanesOfTopic) RequiresConsistency(*kgo.Record) bool { return true }

// OnNewBatch records that the record of the last Partition call would begin a batch.
// The client then calls Partition again.
func (t *lanesOfTopic) OnNewBatch() { t.begins = true }

// turnedAway is an invalid partition: the client returns the record.
const turnedAway = -1

// Partition implements kgo.TopicPartitioner.
func (t *lanesOfTopic) Partition(r *kgo.Record, n int) int {
	if n != t.partitions {
		t.partitions = n
		t.counts.Saw(t.topic, n)
	}
	l, _ := r.Context.Value(laneKey{}).(*lane)
	if l == nil {
		t.begins = false
		return t.byKey.Partition(r, n)
	}
	if t.begins {
		t.begins = false
		if t.follows {
			l.turned.Store(true)
		}
	} else {
		t.follows = l.partition.Load() >= 0
	}
	if l.turned.Load() {
		r.Context = turnedContext{r.Context}
		return turnedAway
	}
	if p := l.partition.Load(); p >= 0 && int(p) < n {
		return int(p)
	}
	p := t.byKey.Partition(r, n)
	if t.counts.Shut(t.topic, int32(p)) { // the topic got more partitions since the last comparison
		t.counts.Saw(t.topic, n) // the relay compares with this number before it sends again
		l.turned.Store(true)
		r.Context = turnedContext{r.Context}
		return turnedAway
	}
	l.partition.Store(int32(p))
	return p
}

// turnedContext marks a record that the partitioner rejected.
type turnedContext struct{ context.Context }

func turned(r *kgo.Record) bool {
	_, ok := r.Context.(turnedContext)
	return ok
}
