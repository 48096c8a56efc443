package publish

import (
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// lane is the ordered queue of one aggregate: first the events that the producer
// has, then the waiting ones. Its stripe guards it; all stripes, if it is a replay's.
type lane struct {
	id   gocql.UUID
	home *stripe
	line dedup.Line

	items       []*item
	outstanding int       // items with the producer
	part        Partition // of the outstanding items
	key         []byte    // of their records: one with another key may belong to another partition
	// failed is the error of an item that the producer returned. Nothing is sent until
	// all outstanding items are back, so that they are sent again in order.
	failed error
	// flight contains the outstanding records. While it rejects records, nothing is sent
	// until all are back.
	flight producer.Flight
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
	// writing means that a dead letter of the lane is being written.
	writing bool
	// replay is the replay that the lane belongs to; nil for an aggregate's own lane.
	replay replay
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
	original outbox.ID // the event that an edited dead letter replaces; zero for others
	written  int64     // write time in microseconds, 0 if unknown
	captured time.Time // when the publisher accepted it; zero without spans
	topic    string
	key      []byte    // that of its record once it was needed: see recordKey
	part     Partition // the partition that it was sent to
	topicErr error
	bytes    int64
	state    itemState
	by       Source
	earlier  int32 // attempts before it became the replayed dead letter
	attempts int
	sentAt   time.Time // when the producer received it
	// shown means that the sweep reader has read the event.
	shown bool
	// scanned means that a backfill offered the event: the CDC log never contains it.
	scanned bool
	settled []func()
	call    *calls.Call
	// cause is the reason why the event becomes a dead letter, nil if it does not.
	cause *deadLetterCause
	one   [1]func() // usual storage of settled
}

// recordKey returns the key of the item's record.
func (it *item) recordKey() []byte {
	if it.key == nil {
		it.key = it.event.Key()
	}
	return it.key
}

func newLane(id gocql.UUID, home *stripe, known dedup.Line, p *producer.Producer) *lane {
	l := &lane{id: id, home: home, line: known}
	l.flight.Init(p)
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

// Hold is an aggregate whose front event cannot be published.
type Hold struct {
	AggregateID gocql.UUID
	EventID     gocql.UUID
	Sequence    int64
	Topic       string
	since       time.Time
	attempts    int
	Err         error
}

// deadLetterCause is the reason why an event becomes a dead letter.
type deadLetterCause struct {
	class string
	err   error
	// stalled means that the event waited for a stalled partition: its dead letter is due when
	// a partition resumes.
	stalled bool
}

// replay is the replay of a dead letter, in a lane of its own. Its methods are called with
// all stripes locked.
type replay interface {
	// isClaimed reports whether the dead letter is still claimed.
	isClaimed() bool
	// end receives the result of the replay, once.
	end(replayEnd)
}
