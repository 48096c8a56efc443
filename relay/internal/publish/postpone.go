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
// their aggregates wait with them. What is published to others in the meantime has to be
// remembered by the next start, which gateRoom bounds.

// ErrPartitionResumed ends a run in which a stalled partition was gated: it takes records again.
var ErrPartitionResumed = errors.New("a partition acknowledges records again")

// isPostponed reports whether the event waits in the log.
func (s *stripe) isPostponed(e *outbox.Event) bool {
	first, ok := s.postponed[e.AggregateID.UUID()]
	return ok && (e.Sequence == 0 || e.Sequence >= first)
}

// postpone records that the event waits in the log, and with it the later ones of its aggregate.
func (s *stripe) postpone(e *outbox.Event) {
	if !s.isPostponed(e) {
		s.postponed[e.AggregateID.UUID()] = e.Sequence
	}
}

// postponesLocked reports whether an offered event has to wait in the log.
func (p *Publisher) postponesLocked(s *stripe, o *Offer) bool {
	e := &o.Event
	if !p.gated.Load() {
		return false
	}
	if it, published, _ := p.ids.find(e.ID.UUID()); it != nil || published || p.mu.deadLetters.Has(e.ID.UUID()) {
		return false
	}
	if s.isPostponed(e) {
		return true
	}
	topic, err := p.names.Of(e)
	if o.Bad != nil || err != nil || !p.producer.Partitions.Gated(topic, e.Key()) {
		return false
	}
	s.postpone(e)
	return true
}

// isGated reports whether the item is for a gated partition.
func (p *Publisher) isGated(it *item) bool {
	return p.gated.Load() && it.topicErr == nil && p.producer.Partitions.Gated(it.topic, it.recordKey())
}

// postponeLocked makes the item and the later ones of its lane wait in the log. The producer has
// none of them.
func (p *Publisher) postponeLocked(l *lane, from *item) {
	i := slices.Index(l.items, from)
	for _, it := range l.items[i:] {
		l.home.postpone(&it.event)
		p.ids.end(it, false)
		p.budget.Give(it.bytes)
	}
	l.items = slices.Delete(l.items, i, len(l.items))
	if i == 0 {
		p.releaseLocked(l)
	}
}

// gateStalledLocked gates a stalled partition whose waiting events fill the budget.
func (p *Publisher) gateStalledLocked(key Partition, silent time.Duration) {
	waiting := p.partitions.set(key, partGated)
	p.Gate(key, p.producer.Partitions.Count(key.Topic))
	fresh, _ := p.ids.size()
	p.Limit(p.cfg.Share.ReadBack() - fresh - p.cfg.MaxInFlightRecords)
	p.log.Error("a partition acknowledges nothing and no more dead letters are written; its events wait in the CDC log",
		"topic", key.Topic, "partition", key.Part, "for", silent, "spill_limit", p.cfg.SpillLimit, "aggregates", len(waiting))
	for l := range waiting {
		p.pumpLocked(l)
		l.home.rest(l)
	}
}
