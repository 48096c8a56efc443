package dlq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Edit is what of a dead event may be changed before it is published.
type Edit struct {
	Payload     []byte
	ContentType string
	Headers     map[string]string
}

// Edited is an edit as it is kept.
type Edited struct {
	// ID is the id under which the event is published.
	ID gocql.UUID
	Edit
	// Actor made it, at At.
	Actor Actor
	At    time.Time
}

// Content is what would be published of the letter now: its last edit, or the
// event as it was. The letter must come from Read or Claim.
func (l *Letter) Content() Edit {
	if l.Edit != nil {
		return l.Edit.Edit
	}
	return Edit{Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers}
}

// Equal tells whether both publish the same.
func (e Edit) Equal(other Edit) bool {
	return bytes.Equal(e.Payload, other.Payload) && e.ContentType == other.ContentType && maps.Equal(e.Headers, other.Headers)
}

// Edit replaces what is published of a letter, under a new id, which it returns,
// and has the relay publish it now; one that waits behind another goes on
// waiting. expect, unless 0, is the letter's version that the operator saw: if
// it has another one by now the error is a *VersionError.
//
// The letter keeps its place in its aggregate's order, its id and the event as
// it was, to the byte. Which of the two is published is decided by one
// transaction on the letter, so no crash can lose the place or publish both. An
// edit may be edited again until it is published. Edits shows all of them.
//
// After an error other than *VersionError, *RefusedError or ErrInvalidEdit the
// edit may have been made or not; Read says it.
func (s *Store) Edit(ctx context.Context, event gocql.UUID, e Edit, by Actor, expect int64) (gocql.UUID, error) {
	by.Version = expect
	edited := Edited{ID: gocql.MustRandomUUID(), Edit: e, Actor: by, At: s.db.Millis()}
	if by.Name == "" {
		return gocql.UUID{}, fmt.Errorf("edit dead letter %s: the actor has no name", event)
	}
	letter, err := s.Read(ctx, event)
	if err != nil {
		return gocql.UUID{}, fmt.Errorf("edit: %w", err)
	}
	if err := e.Fits(&letter); err != nil {
		return gocql.UUID{}, err
	}
	// The edit comes first: a letter that names one has it.
	for a := s.db.Retry(ctx); ; {
		if err = s.keepEdit(ctx, event, &edited); err == nil {
			break
		}
		if hopeless(err) || !a.Pause() {
			return gocql.UUID{}, err
		}
	}
	err = s.operate(ctx, event, ActionEdit, by, func(l *Letter) (planned, error) {
		if l.EditedID != letter.EditedID { // what Fits looked at
			return planned{}, &VersionError{EventID: event, Have: l.Version, Want: letter.Version}
		}
		if l.Status == Parked {
			return planned{
				to: Parked, set: []assignment{{"edited_id", edited.ID}}, line: Change{Outcome: edited.line()},
				change: func(l *Letter) { l.EditedID = edited.ID },
			}, nil
		}
		p := s.dueNow()
		p.set = append(p.set, assignment{"edited_id", edited.ID})
		p.line.Outcome = edited.line()
		due := p.change
		p.change = func(l *Letter) { due(l); l.EditedID = edited.ID }
		return p, nil
	})
	if err != nil {
		return gocql.UUID{}, err
	}
	return edited.ID, nil
}

func (e *Edited) line() string { return "to be published as event " + e.ID.String() }

// ErrInvalidEdit is in the chain of the error of an edit that could not be
// published, or that changes nothing.
var ErrInvalidEdit = errors.New("invalid edit")

// Fits returns nil if the letter, from Read, could be published so, and an error with
// ErrInvalidEdit in its chain if not.
func (e Edit) Fits(l *Letter) error {
	if e.Equal(l.Content()) {
		return fmt.Errorf("edit dead letter %s: %w: it changes nothing; replay publishes the event as it is", l.EventID, ErrInvalidEdit)
	}
	event := outbox.Event{
		ID: l.EventID, AggregateID: outbox.IDOf(l.AggregateID), Sequence: max(l.Sequence, 1), AggregateType: l.AggregateType, Type: l.EventType,
		Payload: e.Payload, ContentType: e.ContentType, Headers: e.Headers, CreatedAt: l.CreatedAt,
	}
	if event.Type == "" || event.AggregateType == "" || l.AggregateID == "" || event.CreatedAt.IsZero() {
		return fmt.Errorf("edit dead letter %s: %w: its row could not be read, so more than payload and headers is missing: mend the row in %s and replay the letter",
			l.EventID, ErrInvalidEdit, l.Table)
	}
	if err := event.Validate(); err != nil {
		return fmt.Errorf("edit dead letter %s: %w: %w", l.EventID, ErrInvalidEdit, err)
	}
	return nil
}

// keepEdit writes an edit down, before any letter names it.
func (s *Store) keepEdit(ctx context.Context, event gocql.UUID, e *Edited) error {
	if err := s.db.Write(ctx, s.stmt.editIDAdd, e.ID, event); err != nil {
		return fmt.Errorf("keep an edit of dead letter %s: %w", event, err)
	}
	if err := s.db.Write(ctx, s.stmt.editAdd, event, e.ID, unsetNil(e.Payload, e.Payload == nil), e.ContentType,
		unsetNil(e.Headers, e.Headers == nil), e.Actor.Name, e.Actor.Reason, e.At); err != nil {
		return fmt.Errorf("keep an edit of dead letter %s: %w", event, err)
	}
	return nil
}

func (e *Edited) dest() []any {
	return []any{&e.ID, &e.Payload, &e.ContentType, &e.Headers, &e.Actor.Name, &e.Actor.Reason, &e.At}
}

// removeEdits removes what edits of a purged letter would have published. Which
// ids were edits of it stays known.
func (s *Store) removeEdits(ctx context.Context, event gocql.UUID) error {
	qctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var id gocql.UUID
	err := s.db.Select(qctx, s.stmt.hasEdits, event).Scan(&id)
	if errors.Is(err, gocql.ErrNotFound) { // as most: no tombstone is needed
		return nil
	}
	if err == nil {
		err = s.db.Write(ctx, s.stmt.editsDrop, event)
	}
	if err != nil {
		return fmt.Errorf("remove the edits of dead letter %s: %w", event, err)
	}
	return nil
}

// readEdit fills in the letter's edit, if it has one.
func (s *Store) readEdit(ctx context.Context, l *Letter) error {
	if l.EditedID == (gocql.UUID{}) || !l.PurgedAt.IsZero() {
		return nil
	}
	var e Edited
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	if err := s.db.Select(ctx, s.stmt.edit, l.EventID, l.EditedID).Scan(e.dest()...); err != nil {
		return fmt.Errorf("read edit %s of dead letter %s: %w", l.EditedID, l.EventID, err)
	}
	l.Edit = &e
	return nil
}

// Edits are the edits of a letter that were decided, oldest first; the last one
// is what is published.
func (s *Store) Edits(ctx context.Context, event gocql.UUID) ([]Edited, error) {
	history, err := s.History(ctx, event)
	if err != nil {
		return nil, err
	}
	decided := make(map[string]int64)
	for _, c := range history {
		if c.Action == ActionEdit {
			decided[c.Outcome] = c.Version
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	iter := s.db.Select(ctx, s.stmt.edits, event).Iter()
	var out []Edited
	for {
		var e Edited
		if !iter.Scan(e.dest()...) {
			break
		}
		if decided[e.line()] > 0 {
			out = append(out, e)
		}
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the edits of dead letter %s: %w", event, err)
	}
	slices.SortStableFunc(out, func(a, b Edited) int { return cmp.Compare(decided[a.line()], decided[b.line()]) })
	return out, nil
}

// OriginalOf returns the event whose letter was, or was to be, published under
// the id of an edit; ErrNotFound if id is no edit's.
func (s *Store) OriginalOf(ctx context.Context, edited gocql.UUID) (gocql.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var event gocql.UUID
	err := s.db.Select(ctx, s.stmt.editOf, edited).Scan(&event)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return event, fmt.Errorf("event %s: %w", edited, ErrNotFound)
	case err != nil:
		return event, fmt.Errorf("read which event %s is an edit of: %w", edited, err)
	}
	return event, nil
}
