package publish

import (
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
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
	p.mu.Lock()
	defer p.mu.Unlock()
	s := publisherState{Open: int(p.ids.open.Load()), Bytes: p.ids.bytes.Load()}
	s.Fresh, s.Shown = p.ids.size()
	for i := range p.mu.stripes {
		s.Held += len(p.mu.stripes[i].held)
		s.Aggregates += p.mu.stripes[i].lines.Len()
	}
	s.DeadLetters, _, s.Blocked = p.mu.deadLetters.Size()
	s.Spilled = p.mu.deadLetters.Spilled()
	if s.Breaker = p.calls.Status(); s.Breaker.State == BreakerClosed { // else the breaker is the problem
		s.Stalled = p.partitions.stalled()
	}
	s.Unstored, s.OldestUnstored = p.mu.oldestUnstored()
	return s
}

// OldestSent returns when the oldest item in the producer was passed to it, zero if
// there is none.
func (p *Publisher) OldestSent() (oldest time.Time) {
	if p == nil {
		return oldest
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids.each(func(items map[gocql.UUID]*item, _ *dedup.Index) {
		for _, it := range items {
			if it.state == sent && (oldest.IsZero() || it.sentAt.Before(oldest)) {
				oldest = it.sentAt
			}
		}
	})
	return oldest
}

// Holds returns the held aggregates.
func (p *Publisher) Holds() []Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []Hold{}
	for i := range p.mu.stripes {
		for _, h := range p.mu.stripes[i].held {
			out = append(out, *h)
		}
	}
	return out
}

// Remaining returns how many events are not acknowledged, and how many of them wait for an
// operator.
func (p *Publisher) Remaining() (open, blocked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remainingLocked()
}

func (p *Publisher) remainingLocked() (open, blocked int) {
	if open = int(p.ids.open.Load()); open == 0 {
		return 0, 0
	}
	for i := range p.mu.stripes {
		for _, l := range p.mu.stripes[i].lanes {
			if l.hold != nil {
				blocked += len(l.items)
			}
		}
	}
	return open, blocked
}

// EventState returns the state of the event, empty if the publisher does not know it.
// Only tests use it: they check the state diagram in docs/design/README.md against it.
func (p *Publisher) EventState(e *outbox.Event) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mu.of(e.AggregateID.UUID())
	it, published, _ := p.ids.find(e.ID.UUID())
	if it != nil {
		l := s.lanes[e.AggregateID.UUID()]
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
		case l.state == laneWriting && p.mu.deadLetters.Blocks(l.id):
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
	if ref, c := p.mu.deadLetters.Ref(e.ID.UUID()); ref != nil {
		switch {
		case c.Head().ID != e.ID.UUID():
			return EventBlocked
		case c.Draining:
			return EventReplaying
		default:
			return EventDead
		}
	}
	if l, ok := s.line(e.AggregateID.UUID()); ok && l.Next > e.Sequence {
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
	for _, s := range p.partitions.stalled() {
		out = append(out, s.Topic)
	}
	return slices.Compact(out)
}

// WaitingUnder returns the number of dead letters that wait under a strategy. p may be
// nil.
func (p *Publisher) WaitingUnder(strategy string) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.deadLetters.Waiting(strategy)
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
	events, _ = p.ids.size()
	return events, p.cfg.Share.Events(), p.ids.near.Is()
}
