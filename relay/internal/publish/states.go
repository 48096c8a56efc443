package publish

import (
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// The states of an event.
const (
	EventQueued    = "queued"      // in its lane
	EventSent      = "sent"        // with the producer
	EventReturned  = "returned"    // the producer gave it back; it waits for its next attempt
	EventSuspect   = "suspect"     // it was refused, and is sent once more, alone
	EventHeld      = "held"        // refused again, and there is no table of dead letters
	EventDead      = "dead_letter" // it died: its letter is being written, or stands and is the first of its chain
	EventParked    = "parked"      // as a dead letter behind another one
	EventReplaying = "replaying"   // its letter is being claimed, or has been
	EventOut       = "out"         // it is in its topic, or an operator has ended it unpublished
)

// EventState returns the state of the event, empty if the publisher does not know it. It is
// for tests: the state diagram in docs/design/README.md is checked against it.
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
		case l.writing && p.letters.blocks(l.id):
			return EventParked
		case l.failed != nil && it.attempts > 0:
			return EventReturned
		default:
			return EventQueued
		}
	}
	if p.memory.has(e.ID) {
		return EventOut
	}
	if k, ok := p.letters.known[e.ID]; ok {
		switch c := p.letters.chains[k.chain]; {
		case c.head().id != e.ID:
			return EventParked
		case c.draining:
			return EventReplaying
		default:
			return EventDead
		}
	}
	if l, ok := p.line(e.AggregateID); ok && l.next > e.Sequence {
		return EventOut
	}
	return ""
}
