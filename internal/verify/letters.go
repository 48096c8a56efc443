package verify

import (
	"context"
	"fmt"

	"github.com/gocql/gocql"
)

// LetterState is the state of the dead letter of an event.
type LetterState int

// The states.
const (
	// LetterOpen: the dead letter waits for a replay or for an operator.
	LetterOpen LetterState = iota
	// LetterParked: the dead letter is parked behind an open one of its aggregate.
	LetterParked
	// LetterClosed: an operator closed the dead letter, so its event is not published
	// from here.
	LetterClosed
	// LetterLate: the event was published after the topics were read.
	LetterLate
)

// Letter is the dead letter of an event.
type Letter struct {
	Event gocql.UUID
	State LetterState
	// Detail contains its status and error, or the note of an operator.
	Detail string
}

// AddLetters adds dead letters; the last one of an event counts. An event in a topic is
// published, whatever the state of its dead letter.
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

// unreadableEvents returns the possible ids of the dead letters of unreadable rows.
func (l *Ledger) unreadableEvents() (ids []gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.unreadable {
		ids = append(ids, u.Events...)
	}
	return ids
}

// readLetters adds the dead letters of the events that are in no topic. They are read
// after the topics, so that they include events that became dead letters, or were
// published from one, in the meantime.
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
