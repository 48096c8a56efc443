package verify

import (
	"context"
	"fmt"

	"github.com/gocql/gocql"
)

// LetterState is where the dead letter of an event stands.
type LetterState int

// The states.
const (
	// LetterOpen: it waits for a replay or for an operator.
	LetterOpen LetterState = iota
	// LetterParked: it waits behind an open one of its aggregate.
	LetterParked
	// LetterClosed: an operator decided that it is never published from here.
	LetterClosed
	// LetterLate: it was published after the topics were read.
	LetterLate
)

// Letter is the dead letter of an event.
type Letter struct {
	Event gocql.UUID
	State LetterState
	// Detail says more: its status and why it died, or what an operator noted.
	Detail string
}

// AddLetters enters dead letters; the last one of an event counts. An event that
// is in a topic is published, whatever its letter says.
func (l *Ledger) AddLetters(letters ...Letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.letters == nil {
		l.letters = make(map[gocql.UUID]Letter)
	}
	for _, d := range letters {
		l.letters[d.Event] = d
	}
}

// unreadableEvents returns the ids that the dead letters of unreadable rows may have.
func (l *Ledger) unreadableEvents() (ids []gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.unreadable {
		ids = append(ids, u.Events...)
	}
	return ids
}

// readLetters enters the dead letters of the events that are in no topic. They
// are asked for when the topics are read: what became a letter, or was published
// from one, meanwhile is told by its letter.
func (v *Verification) readLetters(ctx context.Context) error {
	if v.DeadLetters == nil {
		return nil
	}
	missing := v.ledger.unreadableEvents()
	v.ledger.Check(v.Window, func(f Finding) {
		if f.Kind == Missing {
			missing = append(missing, f.Event)
		}
	})
	if len(missing) == 0 {
		return nil
	}
	if err := v.DeadLetters(ctx, missing, func(l Letter) { v.ledger.AddLetters(l) }); err != nil {
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}
