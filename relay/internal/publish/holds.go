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

// hold holds the aggregate of a front that was refused alone, and cannot become a dead
// letter.
func (c *cell) hold(l *lane, err error) {
	if l.hold == nil {
		front := l.items[0]
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID.UUID(), Sequence: front.event.Sequence, Topic: front.topic, since: c.now,
		}
		c.held[l.id] = l.hold
		c.report(func(to *Publisher) {
			to.log.Error("event cannot be published, aggregate held",
				"event_id", front.event.ID, "aggregate_id", l.id, "sequence", front.event.Sequence, "topic", front.topic, "err", err, trace.Attrs(front.event.Headers))
		})
	}
	l.hold.Err = err
}

// release ends a hold.
func (c *cell) release(l *lane) {
	if l.hold == nil {
		return
	}
	held := c.now.Sub(l.hold.since)
	c.report(func(to *Publisher) { to.log.Info("aggregate released", "aggregate_id", l.id, "held_for", held) })
	delete(c.held, l.id)
	l.hold = nil
}
