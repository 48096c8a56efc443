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
)

// lane is one aggregate's line of events: at its front those with the
// producer, behind them those that wait. The publisher's lock guards it.
type lane struct {
	id   gocql.UUID
	line line

	items       []*item
	outstanding int       // items with the producer
	part        Partition // where they go
	// partition is where the outstanding items went, -1 without any. It is read
	// by the partitioner, which runs with and without the publisher's lock.
	partition atomic.Int32
	// turned says that a record was turned away, because it would have gone into
	// another batch; nothing more is sent until all outstanding ones are back.
	turned atomic.Bool

	// failed is the error of an item that came back; nothing more is sent until
	// all outstanding ones are back too, so that they go out again in order.
	failed error
	// ctx is what the outstanding items were produced with.
	ctx laneContext
	// paused says that a timer or a topic will start the lane again.
	paused bool
	// alone says that the outstanding item is larger than the producer may take:
	// it would come back alone, and those behind it would go out.
	alone bool
	// suspect says that the front item was refused. It is sent alone, because a
	// refusal fails everything that was buffered for the partition.
	suspect bool
	probed  Partition // the partition that it is or was the probe of
	hold    *Hold
	// gated says that the first item that is not with the producer waits for a partition
	// that was not read back.
	gated bool
	// writing says that a dead letter of the lane is being written.
	writing bool
	// ended takes the end of a replay; nil for an aggregate's own lane.
	ended func(replayEnd)
	// claimed reports whether the letter of a replay is still claimed; set with ended.
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
	part     Partition // where it was sent to
	topicErr error
	bytes    int64
	state    itemState
	by       source
	buried   int32 // attempts before it became the dead letter that is replayed
	attempts int
	handed   time.Time // to the producer
	// shown says that the sweep has shown the event.
	shown bool
	// scanned says that a backfill handed the event on: the log never shows it.
	scanned bool
	settled []func()
	call    *call
	// death says that the event becomes a dead letter, and why.
	death *death
	one   [1]func() // what settled stands in, as a rule
}

func newLane(id gocql.UUID, known line) *lane {
	l := &lane{id: id, line: known}
	l.ctx.Context, l.ctx.lane = context.Background(), l
	l.partition.Store(-1)
	return l
}

// firstQueued is the first item that is not with the producer.
func (l *lane) firstQueued() *item {
	for _, it := range l.items {
		if it.state == queued {
			return it
		}
	}
	return nil
}

// pop takes the acknowledged items off the front.
func (l *lane) pop() {
	n := 0
	for n < len(l.items) && l.items[n].state == acked {
		n++
	}
	l.items = slices.Delete(l.items, 0, n)
}

// blocked says that the lane waits for a person, for its delivery time, or for a
// partition that was not read back.
func (l *lane) blocked(now time.Time) bool {
	if l.hold != nil || l.gated && l.outstanding == 0 {
		return true
	}
	it := l.firstQueued()
	return it != nil && l.outstanding == 0 && it.event.DeliverAt.After(now)
}

type laneKey struct{}

// laneContext is what a lane's records are produced with, from the first one
// outstanding to the last one back. It ends when the records are given up, but
// only if none of them was ever on its way to a broker. The client's own idea of
// what it may fail is wider: it forgets that a batch was written when that was
// acknowledged behind one that was not, and when a later attempt is refused. It
// is safe for concurrent use.
type laneContext struct {
	context.Context
	lane   *lane
	p      *Publisher
	handed atomic.Uint64 // the number of the first record
	given  atomic.Bool
}

// errGivenUp is why a record is back that the relay asked for.
var errGivenUp = errors.New("given up by the relay")

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin is called before the first of some records is produced, when none is
// outstanding.
func (c *laneContext) begin(p *Publisher) {
	c.p = p
	c.given.Store(false)
	c.handed.Store(p.handed.Load())
}

// giveUp asks for the records back.
func (c *laneContext) giveUp() { c.given.Store(true) }

func (c *laneContext) unsure() bool { return c.p.wired.Load() >= c.handed.Load() }

// Done is closed when the records are to come back and may; the client asks
// again with every attempt.
func (c *laneContext) Done() <-chan struct{} {
	if c.Err() != nil {
		return closed
	}
	return nil
}

// Err is errGivenUp when Done is closed.
func (c *laneContext) Err() error {
	if c.given.Load() && !c.unsure() {
		return errGivenUp
	}
	return nil
}

// Value gives the partitioner the lane.
func (c *laneContext) Value(key any) any {
	if _, ok := key.(laneKey); ok {
		return c.lane
	}
	return nil
}

// partitioner is Kafka's own for records with keys, with two exceptions.
//
// While an aggregate has records under way they stay on one partition, so that a
// topic which gets more partitions does not put them in two at once.
//
// And they stay in one batch. What the broker refuses is refused by the batch:
// the client gives the batch back and goes on with the next one, before the relay
// can know of it. A record that would begin another batch is turned away
// therefore, and those behind it in its lane, until all that is under way of the
// aggregate is back.
//
// counts is told how many partitions the topics have.
func partitioner(counts *partitionCounts) kgo.Partitioner {
	return lanes{kgo.StickyKeyPartitioner(nil), counts}
}

type lanes struct {
	byKey  kgo.Partitioner
	counts *partitionCounts
}

// ForTopic implements kgo.Partitioner.
func (p lanes) ForTopic(topic string) kgo.TopicPartitioner {
	return &lanesOfTopic{byKey: p.byKey.ForTopic(topic), topic: topic, counts: p.counts}
}

// lanesOfTopic is the partitioner of one topic. The client calls it for one record
// after the other.
type lanesOfTopic struct {
	byKey      kgo.TopicPartitioner
	topic      string
	counts     *partitionCounts
	partitions int // as counts was told
	// follows says that the last record has others of its lane before it, and
	// begins that it would be the first of a batch.
	follows, begins bool
}

// RequiresConsistency implements kgo.TopicPartitioner.
func (*lanesOfTopic) RequiresConsistency(*kgo.Record) bool { return true }

// OnNewBatch is told that the record of the last Partition would begin a batch;
// Partition is then asked again.
func (t *lanesOfTopic) OnNewBatch() { t.begins = true }

// turnedAway is no partition: the client gives the record back.
const turnedAway = -1

// Partition implements kgo.TopicPartitioner.
func (t *lanesOfTopic) Partition(r *kgo.Record, n int) int {
	if n != t.partitions {
		t.partitions = n
		t.counts.saw(t.topic, n)
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
	if t.counts.shut(t.topic, int32(p)) { // the topic got more partitions since the relay compared
		t.counts.saw(t.topic, n) // it compares with this number before it sends again
		l.turned.Store(true)
		r.Context = turnedContext{r.Context}
		return turnedAway
	}
	l.partition.Store(int32(p))
	return p
}

// turnedContext is the context of a record that was turned away.
type turnedContext struct{ context.Context }

func turned(r *kgo.Record) bool {
	_, ok := r.Context.(turnedContext)
	return ok
}
