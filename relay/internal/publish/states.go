package publish

import (
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The states of an event.
const (
	EventQueued    = "queued"      // in its lane
	EventSent      = "sent"        // with the producer
	EventReturned  = "returned"    // returned by the producer; waits for its next attempt
	EventSuspect   = "suspect"     // refused; sent once more, alone
	EventHeld      = "held"        // refused again, without a table of dead letters
	EventDead      = "dead_letter" // its dead letter is being written, or is the first of its chain
	EventParked    = "parked"      // a dead letter that waits behind another one of its chain
	EventReplaying = "replaying"   // its dead letter is being claimed, or is claimed
	EventOut       = "out"         // in its topic, or settled unpublished by an operator
)

// EventState returns the state of the event, empty if the publisher does not know it.
// Only tests use it: they check the state diagram in docs/design/README.md against it.
func (p *Publisher) EventState(e *outbox.Event) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if it := p.items[e.ID]; it != nil {
		l := p.lanes[e.AggregateID]
		front := l.items[0] == it
		switch {
		case front && l.hold != nil:
			return EventHeld
		case front && l.suspect:
			return EventSuspect
		case it.state == sent:
			return EventSent
		case it.state == acked:
			return EventOut
		case it.death != nil:
			return EventDead
		case l.writing && p.letters.Blocks(l.id):
			return EventParked
		case l.failed != nil && it.attempts > 0:
			return EventReturned
		default:
			return EventQueued
		}
	}
	if p.dedup.Has(e.ID) {
		return EventOut
	}
	if ref, c := p.letters.Ref(e.ID); ref != nil {
		switch {
		case c.Head().ID != e.ID:
			return EventParked
		case c.Draining:
			return EventReplaying
		default:
			return EventDead
		}
	}
	if l, ok := p.line(e.AggregateID); ok && l.Next > e.Sequence {
		return EventOut
	}
	return ""
}
