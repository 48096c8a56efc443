package publish

import (
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

var errInterrupted = errors.New("a relay before this one began to make it a dead letter, and may still end that")

// interrupted returns the reason to write a dead letter for an event if a previous
// instance began to write one, else nil.
//
// The previous instance may have been killed. It may also be paused right before the
// write, or the database may delay the write, and the write may complete after the event
// is published. The dead letter would then be open and its replay would publish the event
// twice. A dead letter is stored only once, so this instance writes it too: the first
// write wins, and a replay of the dead letter publishes the event.
//
// An instance lists a dead letter before it stores it, and checks the fence in between.
// The start has therefore read an entry for every dead letter that a previous owner may
// still store.
func (d *deadLetters) interrupted(event gocql.UUID) *deadLetterCause {
	if _, ok := d.begun[event]; !ok {
		return nil
	}
	return &deadLetterCause{class: chains.ClassInterrupted, err: errInterrupted}
}
