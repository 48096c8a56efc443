package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
)

// errNotRead cancels a replay because it is not known, when the row was read again, what became of
// it: the database or the broker did not answer, or the event is in progress.
var errNotRead = errors.New("failed to read the row again")

const (
	// cannotBeRead begins the problem of a dead letter that has no event and whose row gives none.
	cannotBeRead = "cannot be read: "
	// fixUnnumberedRow is the fix of a refused row without a number: replays find rows by their
	// numbers, so it cannot be replayed unedited.
	fixUnnumberedRow = "edit or discard the dead letter: a row without a sequence number is not read again"
)

// readAgain returns the row of a dead letter that could not be read, which may have been corrected,
// as an event. If that has another id, the readers find it under that id too: the replay publishes it
// under its own id as well, unless its fate is settled.
func (r *Replayer) readAgain(ctx context.Context, l *dlq.DeadLetter) (e outbox.Event, fate earlier.Fate, err error) {
	row, err := r.mended(ctx, l)
	if err != nil || row.ID == storedID(l) {
		return row.Event, earlier.Unpublished, err
	}
	if fate, err = r.findFate(ctx, &row); err != nil {
		return row.Event, fate, fmt.Errorf("%w: event %s: %w", errNotRead, row.ID, err)
	}
	if r.p.proofs != nil && fate.Settled() {
		twice, err := r.p.hasIDOfAnother(&row)
		switch {
		case err != nil:
			return row.Event, fate, fmt.Errorf("%w: event %s: %w", errNotRead, row.ID, err)
		case twice:
			r.p.conflicts.idTwice(&row.Event)
			return row.Event, fate, &rows.RowError{Column: "event_id", Problem: "is the id of another event: give the row an id of its own"}
		}
	}
	return row.Event, fate, nil
}

// errInProgress means that another reader has the event.
var errInProgress = errors.New("it is in progress")

// findFate returns whether the event of a mended row is published or a dead letter under its own id.
// If it is neither, it is added to the dedup index, so that only the replay publishes it. Only a
// record proves that it is published: the replay of one without is a duplicate at worst.
func (r *Replayer) findFate(ctx context.Context, row *cdclog.StoredEvent) (earlier.Fate, error) {
	p, id := r.p, row.ID.UUID()
	var it *item
	var published, isDeadLetter bool
	var in dedup.InTopic
	p.ask(func(c *cell) {
		it, published, in = c.ids.find(id)
		isDeadLetter = c.dead.Has(id)
	})
	switch {
	case it != nil:
		return earlier.Doubtful, errInProgress
	case bool(in):
		return earlier.Published, nil
	case published, isDeadLetter:
		if l, err := p.DeadLetter(ctx, id); l == nil { // another row with this id is replayed
			return earlier.Doubtful, cmp.Or(err, errInProgress)
		}
		return earlier.DeadLetter, nil
	}
	if fate, err := p.FateOfDeadLetter(ctx, &row.Event); err != nil || fate.Settled() {
		return fate, err
	}
	written := *row // its record is near the time when it was mended
	written.CreatedAt, written.DeliverAt = time.UnixMicro(row.Written), time.Time{}
	if fate, err := p.Find(ctx, &written); err != nil || fate.Settled() {
		return fate, err
	}
	reserved := false
	p.ask(func(c *cell) { reserved = c.ids.reserve(id, row.Written) })
	if !reserved {
		return earlier.Doubtful, errInProgress
	}
	return earlier.Unpublished, nil
}

// mended reads the row of a dead letter again.
func (r *Replayer) mended(ctx context.Context, l *dlq.DeadLetter) (row cdclog.StoredEvent, err error) {
	e := storedEvent(l)
	bad := &rows.RowError{Column: "of this dead letter", Problem: cannotBeRead}
	bad.Problem += strings.TrimPrefix(l.ErrorText, bad.Error()) // of an earlier replay
	if e.Sequence < 1 && !strings.HasSuffix(bad.Problem, fixUnnumberedRow) {
		bad.Problem += "; " + fixUnnumberedRow
	}
	if r.lookup == nil || e.Sequence < 1 {
		return row, bad
	}
	row, found, err := r.lookup.One(ctx, &e, e.Sequence)
	switch {
	case err != nil: // the state of the row is unknown, so the dead letter is unchanged
		return row, fmt.Errorf("%w: %w", errNotRead, err)
	case !found:
		return row, bad
	}
	return row, row.Err
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
