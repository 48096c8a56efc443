package publish

import (
	"errors"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Nothing is published to a gated partition until the relay has started again: to one that could
// not be read back, and to one that is stalled while no more dead letters may be written and its
// events fill the budget. Its events wait in the CDC log. They are accepted, not kept and never
// settled, so no checkpoint passes them, and they use no budget, so others proceed. Later events of
// their aggregates wait with them. The next start has to remember the events that are published to
// others in the meantime; gateRoom bounds them.

// ErrPartitionResumed ends a run in which a stalled partition was gated: it takes records again.
var ErrPartitionResumed = errors.New("a partition acknowledges records again")

// isPostponed reports whether the event waits in the log.
func (c *cell) isPostponed(e *outbox.Event) bool {
	first, ok := c.postponed[e.AggregateID.UUID()]
	return ok && (e.Sequence == 0 || e.Sequence >= first)
}

// postponeFrom records that the event waits in the log, and with it the later ones of its aggregate.
func (c *cell) postponeFrom(e *outbox.Event) {
	if !c.isPostponed(e) {
		c.postponed[e.AggregateID.UUID()] = e.Sequence
	}
}

// postpones reports whether an offered event has to wait in the log.
func (c *cell) postpones(o *Offer) bool {
	e := &o.Event
	if !c.gated {
		return false
	}
	if it, published, _ := c.ids.find(e.ID.UUID()); it != nil || published || c.dead.Has(e.ID.UUID()) {
		return false
	}
	if c.isPostponed(e) {
		return true
	}
	topic, err := c.env.Of(e)
	if o.Bad != nil || err != nil || !c.env.Gated(topic, e.Key()) {
		return false
	}
	c.postponeFrom(e)
	return true
}

// postpone makes the item and the later ones of its lane wait in the log. The producer has
// none of them.
func (c *cell) postpone(l *lane, from *item) {
	i := slices.Index(l.items, from)
	for _, it := range l.items[i:] {
		c.postponeFrom(&it.event)
		c.ids.end(it, false)
		c.budget.Give(it.bytes)
	}
	l.items = slices.Delete(l.items, i, len(l.items))
	if i == 0 {
		c.release(l)
	}
}

// gateStalled gates a stalled partition whose waiting events fill the budget.
func (c *cell) gateStalled(key Partition, silent time.Duration) {
	waiting := c.partitions.set(key, partGated)
	c.gated = true
	c.env.Gate(key.Topic, key.Part, c.env.Count(key.Topic))
	fresh := c.ids.index.Fresh()
	c.gateRoom.limit(c.cfg.Share.ReadBack() - fresh - c.cfg.MaxInFlightRecords)
	aggregates := len(waiting)
	c.report(func(to *Publisher) {
		to.log.Error("a partition acknowledges nothing and no more dead letters are written; its events wait in the CDC log",
			"topic", key.Topic, "partition", key.Part, "for", silent, "spill_limit", to.cfg.SpillLimit, "aggregates", aggregates)
	})
	for l := range waiting {
		c.pump(l)
	}
}

// gateRoom is the number of events that may still be published while partitions are
// gated. The zero value has no limit.
type gateRoom struct {
	limited bool
	left    int
}

// limit sets the number of events.
func (g *gateRoom) limit(events int) { g.limited, g.left = true, max(events, 0) }

// spend counts a published event. It reports whether its room in the budget may be
// reused; if not, reading stops when the budget is full. used means that the event was the
// first beyond the limit.
func (g *gateRoom) spend() (reuse, used bool) {
	if !g.limited {
		return true, false
	}
	g.left--
	return g.left >= 0, g.left == -1
}
