package archive

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Record is one line of an object: a complete dead letter and its history. Its names
// are the ones of the table dead_letter_queue, whose texts are UTF-8. Times are RFC 3339
// in UTC.
type Record struct {
	EventID        string            `json:"event_id"`
	Version        int64             `json:"version"`
	Status         dlq.Status        `json:"status"`
	Table          string            `json:"table_name"`
	AggregateID    string            `json:"aggregate_id"`
	AggregateType  string            `json:"aggregate_type"`
	EventType      string            `json:"event_type"`
	Sequence       int64             `json:"seq"`
	Priority       int               `json:"priority,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	CreatedAt      time.Time         `json:"created_at,omitzero"`
	DeliverAt      time.Time         `json:"deliver_at,omitzero"`
	WrittenAt      int64             `json:"written_at"`
	Topic          string            `json:"topic"`
	ErrorClass     string            `json:"error_class"`
	ErrorCode      string            `json:"error_code,omitempty"`
	ErrorText      string            `json:"error_text,omitempty"`
	ErrorChain     []string          `json:"error_chain,omitzero"`
	Attempts       int               `json:"attempts"`
	Replays        int               `json:"replays"`
	FirstFailedAt  time.Time         `json:"first_failed_at"`
	LastFailedAt   time.Time         `json:"last_failed_at"`
	Strategy       string            `json:"strategy,omitempty"`
	Rule           string            `json:"rule,omitempty"`
	Waiting        string            `json:"waiting,omitempty"`
	FailureKey     string            `json:"failure_key,omitempty"`
	FailureRepeats int               `json:"failure_repeats,omitempty"`
	Unblocked      bool              `json:"unblocked,omitempty"`
	Outcome        string            `json:"outcome,omitempty"`
	OutcomeTopic   string            `json:"outcome_topic,omitempty"`
	OutcomePart    int32             `json:"outcome_partition,omitempty"`
	OutcomeOffset  int64             `json:"outcome_offset,omitempty"`
	OutcomeNote    string            `json:"outcome_note,omitempty"`
	ResolvedAt     time.Time         `json:"resolved_at,omitzero"`
	ContentType    string            `json:"content_type,omitempty"`
	Headers        map[string]string `json:"headers,omitzero"`
	// Payload is set if the payload is text, PayloadBase64 if it is not; neither if
	// there was none.
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
	Metadata      map[string]string `json:"metadata,omitzero"`
	Raw           map[string]string `json:"raw,omitzero"`
	History       []dlq.Change      `json:"history"`
	// EditedID and Edit are the published edit, if the dead letter was edited, and
	// Edits all its edits, oldest first.
	EditedID string `json:"edited_id,omitempty"`
	Edit     *Edit  `json:"edit,omitempty"`
	Edits    []Edit `json:"edits,omitempty"`
}

// Edit is an edit of a dead letter.
type Edit struct {
	ID          string            `json:"id,omitempty"`
	Payload     []byte            `json:"payload_base64"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitzero"`
	Topic       string            `json:"topic,omitempty"`
	By          string            `json:"by"`
	Reason      string            `json:"reason,omitempty"`
	At          time.Time         `json:"at"`
}

// newEdit is an edit as a line has it.
func newEdit(e *dlq.Edited) Edit {
	return Edit{
		ID: e.ID.String(), Payload: e.Payload, ContentType: e.ContentType, Headers: e.Headers, Topic: e.Topic, By: e.Actor.Name, Reason: e.Actor.Reason, At: e.At,
	}
}

// toEdited is the edit of a line.
func (e *Edit) toEdited() (dlq.Edited, error) {
	id, err := gocql.ParseUUID(e.ID)
	if err != nil {
		return dlq.Edited{}, fmt.Errorf("id %q of an edit: %w", e.ID, err)
	}
	return dlq.Edited{
		ID: id, Edit: dlq.Edit{Payload: e.Payload, ContentType: e.ContentType, Headers: e.Headers, Topic: e.Topic},
		Actor: dlq.Actor{Name: e.By, Reason: e.Reason}, At: e.At,
	}, nil
}

// newRecord returns the line of a dead letter.
func newRecord(c *dlq.Copy) Record {
	l, history := &c.DeadLetter, c.History
	r := Record{
		EventID: l.EventID.String(), Version: l.Version, Status: l.Status, Table: l.Table, AggregateID: l.AggregateID,
		AggregateType: l.AggregateType, EventType: l.EventType, Sequence: l.Sequence, Priority: l.Priority, Tags: l.Tags, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt,
		WrittenAt: l.WrittenAt, Topic: l.Topic, ErrorClass: l.ErrorClass, ErrorCode: l.ErrorCode, ErrorText: l.ErrorText,
		ErrorChain: l.ErrorChain, Attempts: l.Attempts, Replays: l.Replays, FirstFailedAt: l.FirstFailedAt, LastFailedAt: l.LastFailedAt,
		Strategy: l.Strategy, Rule: l.Rule, Waiting: l.Waiting, FailureKey: l.FailureKey, FailureRepeats: l.FailureRepeats,
		Unblocked: l.Unblocked, Outcome: string(l.Outcome.Kind), OutcomeTopic: l.Outcome.Topic, OutcomePart: l.Outcome.Partition,
		OutcomeOffset: l.Outcome.Offset, OutcomeNote: l.Outcome.Note, ResolvedAt: l.ResolvedAt, ContentType: l.ContentType, Headers: l.Headers,
		Metadata: l.Metadata, Raw: l.Raw, History: history,
	}
	switch {
	case l.Payload == nil:
	case utf8.Valid(l.Payload):
		s := string(l.Payload)
		r.Payload = &s
	default:
		s := base64.StdEncoding.EncodeToString(l.Payload)
		r.PayloadBase64 = &s
	}
	if l.EditedID != (gocql.UUID{}) {
		r.EditedID = l.EditedID.String()
	}
	if l.Edit != nil {
		e := newEdit(l.Edit)
		r.Edit = &e
	}
	for i := range c.Edits {
		r.Edits = append(r.Edits, newEdit(&c.Edits[i]))
	}
	return r
}

// Copy returns the dead letter of the line, with its history and its edits.
func (r *Record) Copy() (dlq.Copy, error) {
	l, err := r.DeadLetter()
	if err != nil {
		return dlq.Copy{}, err
	}
	c := dlq.Copy{DeadLetter: l, History: r.History}
	for i := range r.Edits {
		e, err := r.Edits[i].toEdited()
		if err != nil {
			return dlq.Copy{}, fmt.Errorf("event %s: %w", r.EventID, err)
		}
		c.Edits = append(c.Edits, e)
	}
	if l.Edit != nil && len(c.Edits) == 0 { // lines of old have the last one alone
		c.Edits = []dlq.Edited{*l.Edit}
	}
	return c, nil
}

// DeadLetter returns the dead letter of the line, unchanged to the byte.
func (r *Record) DeadLetter() (dlq.DeadLetter, error) {
	id, err := gocql.ParseUUID(r.EventID)
	if err != nil {
		return dlq.DeadLetter{}, fmt.Errorf("event id %q: %w", r.EventID, err)
	}
	l := dlq.DeadLetter{
		EventID: id, Version: r.Version, Status: r.Status, Table: r.Table, AggregateID: r.AggregateID, AggregateType: r.AggregateType,
		EventType: r.EventType, Sequence: r.Sequence, Priority: r.Priority, Tags: r.Tags, CreatedAt: r.CreatedAt, DeliverAt: r.DeliverAt, WrittenAt: r.WrittenAt, Topic: r.Topic,
		ErrorClass: r.ErrorClass, ErrorCode: r.ErrorCode, ErrorText: r.ErrorText, ErrorChain: r.ErrorChain, Attempts: r.Attempts,
		Replays: r.Replays, FirstFailedAt: r.FirstFailedAt, LastFailedAt: r.LastFailedAt, Strategy: r.Strategy, Rule: r.Rule,
		Waiting: r.Waiting, FailureKey: r.FailureKey, FailureRepeats: r.FailureRepeats, Unblocked: r.Unblocked,
		Outcome: dlq.Outcome{
			Kind: dlq.OutcomeKind(r.Outcome), Topic: r.OutcomeTopic, Partition: r.OutcomePart, Offset: r.OutcomeOffset, Note: r.OutcomeNote,
		},
		ResolvedAt: r.ResolvedAt, ContentType: r.ContentType, Headers: r.Headers, Metadata: r.Metadata, Raw: r.Raw,
	}
	switch {
	case r.Payload != nil:
		l.Payload = []byte(*r.Payload)
	case r.PayloadBase64 != nil:
		if l.Payload, err = base64.StdEncoding.DecodeString(*r.PayloadBase64); err != nil {
			return dlq.DeadLetter{}, fmt.Errorf("payload of event %s: %w", r.EventID, err)
		}
	}
	if r.EditedID != "" {
		if l.EditedID, err = gocql.ParseUUID(r.EditedID); err != nil {
			return dlq.DeadLetter{}, fmt.Errorf("edited id %q of event %s: %w", r.EditedID, r.EventID, err)
		}
	}
	if e := r.Edit; e != nil {
		l.Edit = &dlq.Edited{
			ID: l.EditedID, Edit: dlq.Edit{Payload: e.Payload, ContentType: e.ContentType, Headers: e.Headers, Topic: e.Topic},
			Actor: dlq.Actor{Name: e.By, Reason: e.Reason}, At: e.At,
		}
	}
	return l, nil
}

func (r *Record) line() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s as JSON: %w", r.EventID, err)
	}
	return append(b, '\n'), nil
}

// JSON is the line, without its end.
func (r Record) JSON() string {
	b, err := r.line()
	if err != nil {
		return "{}" // plain fields can always be marshalled
	}
	return string(b[:len(b)-1])
}
