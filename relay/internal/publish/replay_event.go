package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// errNotRead calls off the replay of a row that could not be read again, because
// the database did not answer.
var errNotRead = errors.New("its row was not read again")

// eventOf is the event of a dead letter. One whose row could not be read is
// read again: somebody may have mended it.
func (r *replayer) eventOf(ctx context.Context, l *dlq.DeadLetter) (outbox.Event, error) {
	e := eventOfLetter(l)
	if !mustReadAgain(l) {
		return e, nil
	}
	bad := &outbox.RowError{Column: "of this dead letter", Problem: "cannot be read: " + l.ErrorText}
	if r.lookup == nil || e.Sequence < 1 {
		return e, bad
	}
	row, found, err := r.lookup.One(ctx, &e, e.Sequence)
	switch {
	case err != nil: // of the row nothing is known, so the letter stays what it is
		return e, fmt.Errorf("%w: %w", errNotRead, err)
	case !found:
		return e, bad
	case row.Err != nil:
		return e, row.Err
	}
	mended := row.Event
	mended.ID, mended.IDText = e.ID, e.IDText // it stays this letter's event
	return mended, nil
}

// mustReadAgain says that the letter has no event that can be published, only
// what could be read of one.
func mustReadAgain(l *dlq.DeadLetter) bool {
	return l.Edit == nil && (l.ErrorClass == ClassUndecodable || l.Metadata[metaBadRow] != "")
}

// eventOfLetter is the event as the letter has it, or as it was edited.
func eventOfLetter(l *dlq.DeadLetter) outbox.Event {
	e := outbox.Event{
		ID: l.EventID, IDText: l.Metadata[metaIDText], AggregateID: outbox.IDOf(l.AggregateID), AggregateText: l.Metadata[metaAggregateText],
		Sequence: l.Sequence, AggregateType: l.AggregateType, Type: l.EventType,
		Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt,
	}
	if l.Edit != nil {
		e.EditOf = e.IDString()
		e.ID, e.IDText, e.Payload, e.ContentType, e.Headers = l.Edit.ID, "", l.Edit.Payload, l.Edit.ContentType, l.Edit.Headers
	}
	return e
}
