package publish

import (
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Hold is an aggregate whose front event cannot be published.
type Hold struct {
	AggregateID gocql.UUID
	EventID     gocql.UUID
	Sequence    int64
	Topic       string
	since       time.Time
	Err         error
}

// holdLocked holds the aggregate of a front that was refused alone, and cannot become a dead
// letter.
func (p *Publisher) holdLocked(l *lane, err error, now time.Time) {
	front := l.items[0]
	if l.hold == nil {
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID.UUID(), Sequence: front.event.Sequence, Topic: front.topic, since: now,
		}
		l.home.held[l.id] = l.hold
		p.log.Error("event cannot be published, aggregate held",
			"event_id", front.event.ID, "aggregate_id", l.id, "sequence", front.event.Sequence, "topic", front.topic, "err", err, trace.Attrs(front.event.Headers))
	}
	l.hold.Err = err
}

// releaseLocked ends a hold.
func (p *Publisher) releaseLocked(l *lane) {
	if l.hold == nil {
		return
	}
	p.log.Info("aggregate released", "aggregate_id", l.id, "held_for", time.Since(l.hold.since))
	delete(l.home.held, l.id)
	l.hold = nil
}
