package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// DeadLetterState is the state of the dead letter of an event.
type DeadLetterState int

// The states.
const (
	// DeadLetterOpen: the dead letter waits for a replay or for an operator.
	DeadLetterOpen DeadLetterState = iota
	// DeadLetterBlocked: the dead letter is blocked behind an open one of its aggregate.
	DeadLetterBlocked
	// DeadLetterClosed: an operator closed the dead letter, so its event is not published
	// from here.
	DeadLetterClosed
	// DeadLetterLate: the event was published after the topics were read.
	DeadLetterLate
)

// DeadLetter is the dead letter of an event.
type DeadLetter struct {
	Event gocql.UUID
	// Aggregate is zero where it is unknown, because the row was unreadable.
	Aggregate outbox.ID
	State     DeadLetterState
	// Detail contains its status and error, or the note of an operator.
	Detail string
}

// mayBelongTo reports whether the dead letter may be of an event of the aggregate: an id may be given to
// events of two.
func (d *DeadLetter) mayBelongTo(aggregate gocql.UUID) bool {
	return d.Aggregate.IsZero() || d.Aggregate.UUID() == aggregate
}

// DeadLetters are the dead letters of a table.
type DeadLetters interface {
	// Read calls each, in this goroutine, for the ones of the events of which a dead
	// letter exists. One whose event was published after began has the state
	// DeadLetterLate: the event may be absent from the topics that were read since began.
	Read(ctx context.Context, began time.Time, events []gocql.UUID, each func(DeadLetter)) error
}

// AddDeadLetters adds dead letters; the last one of an event counts. An event in a topic is
// published, whatever the state of its dead letter.
func (l *Ledger) AddDeadLetters(deadLetters ...DeadLetter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deadLetters == nil {
		l.deadLetters = make(map[gocql.UUID]DeadLetter)
	}
	for _, d := range deadLetters {
		l.deadLetters[d.Event] = d
	}
}

// unreadableEvents returns the possible ids of the dead letters of unreadable rows.
func (l *Ledger) unreadableEvents() (ids []gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.unreadable {
		ids = append(ids, u.Events...)
	}
	return ids
}

// readDeadLetters adds the dead letters of the events that are in no topic. They are read
// after the topics, so that they include events that became dead letters, or were
// published from one, in the meantime.
func (v *Verification) readDeadLetters(ctx context.Context) error {
	if v.DeadLetters == nil {
		return nil
	}
	missing := v.ledger.unreadableEvents()
	v.ledger.Check(v.Window, func(f Finding) {
		if f.Kind == Missing {
			missing = append(missing, f.Event.UUID())
		}
	})
	if len(missing) == 0 {
		return nil
	}
	if err := v.DeadLetters.Read(ctx, v.began, missing, func(l DeadLetter) { v.ledger.AddDeadLetters(l) }); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}
