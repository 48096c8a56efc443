package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// errNotRead cancels a replay because the database did not answer when the row was
// read again.
var errNotRead = errors.New("failed to read the row again")

const (
	// cannotBeRead begins the problem of a dead letter that has no event and whose row gives none.
	cannotBeRead = "cannot be read: "
	// fixUnnumberedRow is the fix of a refused row without a number: replays find rows by their
	// numbers, so it cannot be replayed unedited.
	fixUnnumberedRow = "edit or discard the dead letter: a row without a sequence number is not read again"
)

// eventOf returns the event of a dead letter. It reads an undecodable row again, because
// the row may have been corrected.
func (r *Replayer) eventOf(ctx context.Context, l *dlq.DeadLetter) (outbox.Event, error) {
	e := storedEvent(l)
	if !mustReadAgain(l) {
		return e, nil
	}
	bad := &rows.RowError{Column: "of this dead letter", Problem: cannotBeRead}
	bad.Problem += strings.TrimPrefix(l.ErrorText, bad.Error()) // of an earlier replay
	if e.Sequence < 1 && !strings.HasSuffix(bad.Problem, fixUnnumberedRow) {
		bad.Problem += "; " + fixUnnumberedRow
	}
	if r.lookup == nil || e.Sequence < 1 {
		return e, bad
	}
	row, found, err := r.lookup.One(ctx, &e, e.Sequence)
	switch {
	case err != nil: // the state of the row is unknown, so the dead letter is unchanged
		return e, fmt.Errorf("%w: %w", errNotRead, err)
	case !found:
		return e, bad
	case row.Err != nil:
		return e, row.Err
	}
	mended := row.Event
	mended.ID = e.ID // keep the id of the dead letter
	return mended, nil
}

// mustReadAgain reports whether the dead letter contains only the readable part of a
// row, and no event that can be published.
func mustReadAgain(l *dlq.DeadLetter) bool {
	return l.Edit == nil && (l.ErrorClass == chains.ClassUndecodable || l.Metadata[metaBadRow] != "")
}

// storedEvent returns the event stored in the dead letter, or its edited version.
func storedEvent(l *dlq.DeadLetter) outbox.Event {
	e := outbox.Event{
		ID: storedID(l), AggregateID: outbox.IDFromText(l.AggregateID),
		Sequence: l.Sequence, AggregateType: l.AggregateType, Type: l.EventType,
		Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt,
	}
	if l.Edit != nil {
		e.ID, e.Payload, e.ContentType, e.Headers = outbox.IDFromUUID(l.Edit.ID), l.Edit.Payload, l.Edit.ContentType, l.Edit.Headers
		e.DeliverAt = time.Time{} // an operator decides when
	}
	return e
}

// storedID returns the id of the event in the outbox.
func storedID(l *dlq.DeadLetter) outbox.ID {
	if text := l.Metadata[metaIDText]; text != "" {
		return outbox.IDFromText(text)
	}
	return outbox.IDFromUUID(l.EventID)
}
