package publish

import (
	"slices"
	"time"

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
	EventBlocked   = "blocked"     // a dead letter that waits behind another one of its chain
	EventReplaying = "replaying"   // its dead letter is being claimed, or is claimed
	EventOut       = "out"         // in its topic, or settled unpublished by an operator
)

type publisherState struct {
	Open  int
	Bytes int64
	Held  int
	// Size of the dedup index: events whose rows the sweep has not read, events whose
	// rows it has read, aggregates.
	Fresh, Shown, Aggregates int
	// DeadLetters counts unsettled dead letters, Spilled those written because the
	// breaker was open, Blocked the aggregates blocked by a dead letter.
	DeadLetters, Spilled, Blocked int
	Breaker                       BreakerStatus
	Stalled                       []StalledTopic
	Unstored                      int
	OldestUnstored                UnstoredDeadLetter
}

// State returns the state of the publisher, zero for a nil publisher.
func (p *Publisher) State() publisherState {
	if p == nil {
		return publisherState{}
	}
	var s publisherState
	p.ask(func(c *cell) {
		s = publisherState{Open: int(c.ids.open), Bytes: c.ids.bytes, Held: len(c.held), Aggregates: c.lines.Len()}
		s.Fresh, s.Shown = c.ids.index.Fresh(), c.ids.index.Shown()
		s.DeadLetters, _, s.Blocked = c.dead.Size()
		s.Spilled = c.dead.Spilled()
		if s.Breaker = c.calls.Status(); s.Breaker.State == BreakerClosed { // else the breaker is the problem
			s.Stalled = c.partitions.stalled()
		}
		s.Unstored, s.OldestUnstored = c.dead.oldestUnstored()
	})
	return s
}

// OldestSent returns when the oldest item in the producer was passed to it, zero if
// there is none.
func (p *Publisher) OldestSent() (oldest time.Time) {
	if p == nil {
		return oldest
	}
	p.ask(func(c *cell) {
		for _, it := range c.ids.items {
			if it.state == sent && (oldest.IsZero() || it.sentAt.Before(oldest)) {
				oldest = it.sentAt
			}
		}
	})
	return oldest
}

// Holds returns the held aggregates.
func (p *Publisher) Holds() []Hold {
	out := []Hold{}
	p.ask(func(c *cell) {
		for _, h := range c.held {
			out = append(out, *h)
		}
	})
	return out
}

// Remaining returns how many events are not acknowledged, and how many of them wait for an
// operator.
func (p *Publisher) Remaining() (open, blocked int) {
	p.ask(func(c *cell) { open, blocked = c.remaining() })
	return open, blocked
}

func (c *cell) remaining() (open, blocked int) {
	if open = int(c.ids.open); open == 0 {
		return 0, 0
	}
	for _, l := range c.lanes {
		if l.hold != nil {
			blocked += len(l.items)
		}
	}
	return open, blocked
}

// EventState returns the state of the event, empty if the publisher does not know it.
// Only tests use it: they check the state diagram in docs/design/README.md against it.
func (p *Publisher) EventState(e *outbox.Event) (state string) {
	p.ask(func(c *cell) { state = c.eventState(e) })
	return state
}

func (c *cell) eventState(e *outbox.Event) string {
	it, published, _ := c.ids.find(e.ID.UUID())
	if it != nil {
		l := c.lanes[e.AggregateID.UUID()]
		front := l.items[0] == it
		switch {
		case front && l.hold != nil:
			return EventHeld
		case front && (l.state == laneSuspect || l.state == laneHeld):
			return EventSuspect
		case it.state == sent:
			return EventSent
		case it.state == acked:
			return EventOut
		case it.cause != nil:
			return EventDead
		case l.state == laneWriting && c.dead.Blocks(l.id):
			return EventBlocked
		case l.err != nil && it.attempts > 0:
			return EventReturned
		default:
			return EventQueued
		}
	}
	if published {
		return EventOut
	}
	if ref, chain := c.dead.Ref(e.ID.UUID()); ref != nil {
		switch {
		case chain.Head().ID != e.ID.UUID():
			return EventBlocked
		case chain.Draining:
			return EventReplaying
		default:
			return EventDead
		}
	}
	if l, ok := c.line(e.AggregateID.UUID()); ok && l.Next > e.Sequence {
		return EventOut
	}
	return ""
}

// StalledTopics returns the sorted names of the topics with a stalled partition. p may be
// nil.
func (p *Publisher) StalledTopics() []string {
	out := []string{}
	if p == nil {
		return out
	}
	for _, s := range p.stalled() {
		out = append(out, s.Topic)
	}
	return slices.Compact(out)
}

// stalled returns the stalled partitions, sorted by topic and partition.
func (p *Publisher) stalled() (all []StalledTopic) {
	p.ask(func(c *cell) { all = c.partitions.stalled() })
	return all
}

// WaitingUnder returns the number of dead letters that wait under a strategy. p may be
// nil.
func (p *Publisher) WaitingUnder(strategy string) int {
	if p == nil {
		return 0
	}
	n := 0
	p.ask(func(c *cell) { n = c.dead.Waiting(strategy) })
	return n
}

// DataLoss returns the last loss if it is more recent than dataLossReported, else nil.
func (p *Publisher) DataLoss(now time.Time) *DataLoss {
	if l := p.losses.last.Load(); l != nil && now.Sub(l.At) < dataLossReported {
		return l
	}
	return nil
}

// MemoryUse returns the number of events that wait for the sweep reader, their limit,
// and whether the number is near the limit.
func (p *Publisher) MemoryUse() (events, limit int, near bool) {
	p.ask(func(c *cell) { events = c.ids.index.Fresh() })
	return events, p.cfg.Share.Events(), p.near.Is()
}
