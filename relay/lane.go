package relay

import (
	"container/list"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// recentEvents is how many event ids of an aggregate are remembered. Of older
// events their sequence number decides whether they were handed on.
const recentEvents = 32

// maxGaps bounds the sequence numbers that an aggregate's lane remembers as
// passed over.
const maxGaps = 1000

// lane is one aggregate's line of events: at its front those with the
// producer, behind them those that wait. The publisher's lock guards it.
type lane struct {
	id gocql.UUID
	// The events first to next-1 were handed on, but for those in gaps. The ids
	// of the last of them are in recent; up to dropped they have left it.
	first, next int64
	dropped     int64
	gaps        []int64
	recent      []handedOn
	newest      int64 // write time of the newest event, in microseconds

	items       []*item
	outstanding int    // items with the producer
	topic       string // their topic
	// partition is where the outstanding items went, -1 without any. It is read
	// by the partitioner, which runs with and without the publisher's lock.
	partition atomic.Int32

	// failed is the error of an item that came back; nothing more is sent until
	// all outstanding ones are back too, so that they go out again in order.
	failed error
	// paused says that a timer or a topic will start the lane again.
	paused bool
	// suspect says that the front item was refused. It is sent alone, because a
	// refusal fails everything that was buffered for the partition.
	suspect bool
	hold    *Hold
	idle    *list.Element // in the publisher's list while there are no items
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
	topicErr error
	bytes    int64
	state    itemState
	attempts int
	handed   time.Time // to the producer
	settled  []func()
}

func newLane(id gocql.UUID) *lane {
	l := &lane{id: id}
	l.partition.Store(-1)
	return l
}

// handedOn is an event that was handed on.
type handedOn struct {
	seq int64
	id  gocql.UUID
}

// remember notes that the event is handed on.
func (l *lane) remember(e *outbox.Event, written int64) {
	switch {
	case l.next == 0:
		l.first, l.next = e.Sequence, e.Sequence+1
	case e.Sequence >= l.next:
		for seq := l.next; seq < e.Sequence && len(l.gaps) < maxGaps; seq++ {
			l.gaps = append(l.gaps, seq)
		}
		l.next = e.Sequence + 1
	default:
		l.gaps = slices.DeleteFunc(l.gaps, func(seq int64) bool { return seq == e.Sequence })
	}
	l.newest = max(l.newest, written)
	if len(l.recent) == recentEvents {
		l.dropped = max(l.dropped, l.recent[0].seq)
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, handedOn{seq: e.Sequence, id: e.ID})
}

// seen says whether the event was handed on before. What is one event is
// decided by its id, as long as the id is remembered.
func (l *lane) seen(e *outbox.Event) bool {
	if slices.Contains(l.recent, handedOn{seq: e.Sequence, id: e.ID}) {
		return true
	}
	return l.first <= e.Sequence && e.Sequence <= l.dropped && !slices.Contains(l.gaps, e.Sequence) &&
		!slices.ContainsFunc(l.recent, func(h handedOn) bool { return h.seq == e.Sequence })
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

// blocked says that the lane waits for a person or for its delivery time.
func (l *lane) blocked(now time.Time) bool {
	if l.hold != nil {
		return true
	}
	it := l.firstQueued()
	return it != nil && l.outstanding == 0 && it.event.DeliverAt.After(now)
}

type laneKey struct{}

// inLane is the context a lane's records are produced with. It never ends: an
// idempotent producer cannot take a record back.
func inLane(l *lane) context.Context { return context.WithValue(context.Background(), laneKey{}, l) }

// partitioner is Kafka's own for records with keys, with one exception: while
// an aggregate has records under way they stay on one partition, so that a
// topic which gets more partitions does not put them in two at once.
func partitioner() kgo.Partitioner {
	hash := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		byKey := hash.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			l, _ := r.Context.Value(laneKey{}).(*lane)
			if l == nil {
				return byKey.Partition(r, n)
			}
			if p := l.partition.Load(); p >= 0 && int(p) < n {
				return int(p)
			}
			p := byKey.Partition(r, n)
			l.partition.Store(int32(p))
			return p
		}
	})
}
