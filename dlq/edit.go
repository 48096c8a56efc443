package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Edit is the content of an event that an operator may change before it is published.
type Edit struct {
	Payload     []byte
	ContentType string
	Headers     map[string]string
	// Topic is the topic to publish to; empty means that of the event. See Redirect.
	Topic string
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

// Content returns the content to publish: the last edit, or the original event. The
// dead letter must come from Read or Claim.
func (l *DeadLetter) Content() Edit {
	if l.Edit != nil {
		return l.Edit.Edit
	}
	return Edit{Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers}
}

// Equal reports whether both have the same content.
func (e Edit) Equal(other Edit) bool {
	return bytes.Equal(e.Payload, other.Payload) && e.ContentType == other.ContentType && maps.Equal(e.Headers, other.Headers) && e.Topic == other.Topic
}

func (e *Edited) line() string {
	line := "to be published as event " + e.ID.String()
	if e.Topic != "" {
		line += " to topic " + e.Topic
	}
	return line
}

// ErrInvalidEdit is in the chain of the error of an edit that could not be
// published, or that changes nothing.
var ErrInvalidEdit = errors.New("invalid edit")

// Fits returns nil if the dead letter, from Read, can be published with this content,
// and else an error with ErrInvalidEdit in its chain. The content of a dead letter of a
// subscription only has to differ.
func (e Edit) Fits(l *DeadLetter) error {
	if e.Equal(l.Content()) {
		return fmt.Errorf("edit dead letter %s: %w: it changes nothing; replay publishes the event as it is", l.EventID, ErrInvalidEdit)
	}
	if _, ok := ParseSubscription(l.Table); ok {
		return nil // the record of any producer: it has the fields that it has
	}
	event := outbox.Event{ // ids fit, whatever the columns of the event's table are
		ID: outbox.IDFromUUID(l.EventID), AggregateID: outbox.IDFromUUID(rows.IDOf(l.AggregateID)), Sequence: max(l.Sequence, 1), AggregateType: l.AggregateType, Type: l.EventType,
		Payload: e.Payload, ContentType: e.ContentType, Headers: e.Headers, CreatedAt: l.CreatedAt,
	}
	if l.incomplete() {
		return fmt.Errorf("edit dead letter %s: %w: its row could not be read, so fields other than payload and headers are missing: fix the row in %s and replay the dead letter",
			l.EventID, ErrInvalidEdit, l.Table)
	}
	if was := l.Headers[outbox.HeaderTopic]; e.Headers[outbox.HeaderTopic] != was {
		return fmt.Errorf("edit dead letter %s: %w: header %s is the topic of the row, %q: leave it unchanged, and publish to another topic by outbox dlq redirect",
			l.EventID, ErrInvalidEdit, outbox.HeaderTopic, was)
	}
	if _, ok := event.Headers[outbox.HeaderTopic]; ok { // of a column, which no writer puts into the headers
		event.Headers = maps.Clone(event.Headers)
		delete(event.Headers, outbox.HeaderTopic)
	}
	if err := event.Validate(); err != nil {
		return fmt.Errorf("edit dead letter %s: %w: %w", l.EventID, ErrInvalidEdit, err)
	}
	return nil
}

// incomplete reports that the row of the event could not be read.
func (l *DeadLetter) incomplete() bool {
	return l.EventType == "" || l.AggregateType == "" || l.AggregateID == "" || l.CreatedAt.IsZero()
}

// edits is the table of edits. A dead letter contains the id of its last one.
type edits struct {
	db   *db.DB
	stmt editStatements
}

// keep stores an edit, before a dead letter contains its id.
func (e edits) keep(ctx context.Context, event gocql.UUID, edit *Edited) error {
	if err := e.db.Write(ctx, e.stmt.editIDAdd, edit.ID, event); err != nil {
		return fmt.Errorf("store an edit of dead letter %s: %w", event, err)
	}
	if err := e.db.Write(ctx, e.stmt.editAdd, event, edit.ID, unsetNil(edit.Payload, edit.Payload == nil), edit.ContentType,
		unsetNil(edit.Headers, edit.Headers == nil), unsetNil(edit.Topic, edit.Topic == ""), edit.Actor.Name, edit.Actor.Reason, edit.At); err != nil {
		return fmt.Errorf("store an edit of dead letter %s: %w", event, err)
	}
	return nil
}

func (e *Edited) dest() []any {
	return []any{&e.ID, &e.Payload, &e.ContentType, &e.Headers, &e.Topic, &e.Actor.Name, &e.Actor.Reason, &e.At}
}

// remove removes the contents of the edits of a purged dead letter that were stored until
// a write time, in microseconds of the database. The ids of the edits remain.
func (e edits) remove(ctx context.Context, event gocql.UUID, until int64) error {
	qctx, cancel := context.WithTimeout(ctx, e.db.Timeout)
	defer cancel()
	var id gocql.UUID
	err := e.db.Select(qctx, e.stmt.hasEdits, event).Scan(&id)
	if errors.Is(err, gocql.ErrNotFound) { // as most: no tombstone is needed
		return nil
	}
	if err == nil {
		err = e.db.Write(ctx, e.stmt.editsDrop, until, event)
	}
	if err != nil {
		return fmt.Errorf("remove the edits of dead letter %s: %w", event, err)
	}
	return nil
}

// drop removes the content of one edit.
func (e edits) drop(ctx context.Context, event, edit gocql.UUID) error {
	if err := e.db.Write(ctx, e.stmt.editDrop, event, edit); err != nil {
		return fmt.Errorf("remove edit %s of dead letter %s: %w", edit, event, err)
	}
	return nil
}

// fill reads the edit of a dead letter, if it has one.
func (e edits) fill(ctx context.Context, l *DeadLetter) error {
	if l.EditedID == (gocql.UUID{}) || !l.PurgedAt.IsZero() {
		return nil
	}
	var edit Edited
	ctx, cancel := context.WithTimeout(ctx, e.db.Timeout)
	defer cancel()
	if err := e.db.Select(ctx, e.stmt.edit, l.EventID, l.EditedID).Scan(edit.dest()...); err != nil {
		return fmt.Errorf("read edit %s of dead letter %s: %w", l.EditedID, l.EventID, err)
	}
	l.Edit = &edit
	return nil
}

// topicPattern matches the names that Kafka allows.
var topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// ValidTopic reports whether Kafka accepts the name of a topic.
func ValidTopic(name string) bool {
	return topicPattern.MatchString(name) && name != "." && name != ".."
}
