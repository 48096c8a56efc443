package dlq

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Letter is an event that was not published, why, and what was done about it.
// Times have milliseconds.
type DeadLetter struct {
	// Table is the outbox table, "keyspace.table".
	Table string
	// EventID is the letter's key: one event is one letter, however often it
	// dies. A row without one has the id of RowID.
	EventID gocql.UUID
	// AggregateID is the aggregate in text form.
	AggregateID string
	// AggregateType and EventType are the event's.
	AggregateType, EventType string
	// Sequence is the event's number; 0 in tables without numbers.
	Sequence int64

	// Payload, ContentType and Headers are the event's, unchanged to the byte.
	// What was null comes back nil, what was empty comes back empty.
	Payload     []byte
	ContentType string
	Headers     map[string]string
	// CreatedAt and DeliverAt are the event's.
	CreatedAt, DeliverAt time.Time
	// WrittenAt is the write time of the event's CDC row, in microseconds.
	WrittenAt int64
	// Topic is where the event would have gone; empty if that is not known.
	Topic string

	// Status is where the letter stands.
	Status Status
	// Version counts the letter's changes, from 1.
	Version int64
	// Released says that later events of the aggregate do not wait for it.
	Released bool

	// ErrorClass is why it died, one of few: breaker_open, attempts_used,
	// record_too_large, topic_not_allowed, undecodable, behind …
	ErrorClass string
	// ErrorCode, ErrorText and ErrorChain are the last error: the code of the
	// broker or the database, the message, and the messages it wraps.
	ErrorCode, ErrorText string
	ErrorChain           []string
	// Attempts counts attempts to publish, over all its life.
	Attempts int
	// Replays counts replays that failed. An operator may ask for one more than
	// are made by themselves.
	Replays int
	// FirstFailedAt and LastFailedAt are when it died first and last.
	FirstFailedAt, LastFailedAt time.Time
	// Strategy chose NextAttempt, the time before which it is not replayed by
	// itself; zero means at once for a pending letter. Bury stores what it is
	// given: Delay(0) from now is the default, and zero right for what an open
	// breaker stopped. Rule is the name of the StrategyRule that chose Strategy.
	Strategy    string
	Rule        string
	NextAttempt time.Time
	// Waiting is why nobody tries the letter, in plain words; empty if its status
	// and NextAttempt say all there is. WaitsFor is the whole answer.
	Waiting string
	// FailureKey is that of the last error, and FailureRepeats how often in a row
	// the letter died of it.
	FailureKey     string
	FailureRepeats int

	// ClaimedBy has the letter until ClaimedUntil.
	ClaimedBy    string
	ClaimedUntil time.Time

	// Outcome is set once the letter is resolved, at ResolvedAt.
	Outcome    Outcome
	ResolvedAt time.Time

	// PurgedAt is when all but the letter's outline was removed; zero while it is
	// whole. A purged letter is archived, and on the list of its status alone.
	PurgedAt time.Time
	// Archive is where its copy is, if it was purged with one.
	Archive string
	// EditedID is the id under which the event is published, since somebody edited
	// it; zero if nobody did. EventID stays the letter's.
	EditedID gocql.UUID
	// Edit, if EditedID is not zero, is what is published in place of Payload,
	// ContentType and Headers, which stay as they were. Read and Claim fill it in;
	// lists do not.
	Edit *Edited

	// Metadata is what the relay knew: source, breaker, lag, host.
	Metadata map[string]string
	// Raw is what could be read of a row that is no event, column by column in
	// the text form of CQL; blobs as 0x….
	Raw map[string]string

	job gocql.UUID // the bulk job that changed it last
}

// OutcomeKind is how a letter was resolved.
type OutcomeKind string

// The kinds of outcomes.
const (
	// OutcomeReplayed: it was published.
	OutcomeReplayed OutcomeKind = "replayed"
	// OutcomeFound: it was in its topic already.
	OutcomeFound OutcomeKind = "found"
	// OutcomeDiscarded: it will never be published.
	OutcomeDiscarded OutcomeKind = "discarded"
	// OutcomeReleased: it was published after its aggregate had gone on.
	OutcomeReleased OutcomeKind = "released"
	// OutcomeByHand: somebody settled it elsewhere.
	OutcomeByHand OutcomeKind = "by_hand"
)

// Outcome is how a letter ended.
type Outcome struct {
	Kind OutcomeKind
	// Topic, Partition and Offset are the event's record, if it has one: then
	// Topic is not empty.
	Topic     string
	Partition int32
	Offset    int64
	// Note is free text.
	Note string
}

// Failure is why a replay failed.
type Failure struct {
	// Class, Code, Text and Chain are as in Letter.
	Class, Code, Text string
	Chain             []string
	// Attempts is how many attempts to publish were made.
	Attempts int
	// Final says that another attempt cannot help: the letter becomes manual.
	Final bool
	// NextAttempt is when to replay it again. Zero is Delay from now.
	NextAttempt time.Time
	// Strategy is what chose NextAttempt, and Rule what chose Strategy. Empty
	// means StrategyImmediate.
	Strategy, Rule string
	// MaxReplays is after how many failed replays the letter is failed, and
	// SameError after how many equal failures in a row it is manual. Zero means
	// the store's limit, and no limit of its own.
	MaxReplays, SameError int
	// Waiting is why nobody will try it again, of a Final failure.
	Waiting string
	// Metadata, unless nil, replaces the letter's.
	Metadata map[string]string
}

// ChainEntry is an open letter without what only publishing needs.
type ChainEntry struct {
	EventID                             gocql.UUID
	AggregateID                         string
	AggregateType, EventType            string
	Sequence, WrittenAt                 int64
	Topic                               string
	Status                              Status
	Version                             int64
	Released                            bool
	ErrorClass                          string
	Attempts, Replays                   int
	CreatedAt, DeliverAt, FirstFailedAt time.Time
	NextAttempt                         time.Time
	Strategy, Rule, FailureKey          string
	ClaimedBy                           string
	ClaimedUntil                        time.Time
}

// Actor is who changes a letter and why.
type Actor struct {
	// Name is a person or a program; required.
	Name string `json:"name"`
	// Reason is why; kept in the history.
	Reason string `json:"reason,omitempty"`
	// Job is the bulk job that acts for them, zero without one. A job changes a
	// letter once: what it did already is not done again.
	Job gocql.UUID `json:"job,omitzero"`
	// Version, unless zero, is the letter's that the actor has seen: a letter that
	// somebody changed since is left alone, with a *VersionError.
	Version int64 `json:"-"`
}

// of is the outcome of l: of an edited letter it says so.
func (o Outcome) of(l *DeadLetter) Outcome {
	if l.EditedID != (gocql.UUID{}) && o.Kind == OutcomeReplayed && o.Note == "" {
		o.Note = "edited, as event " + l.EditedID.String()
	}
	return o
}

// String is the outcome in words, such as "replayed to OrderCreated[3]@17".
func (o Outcome) String() string {
	if o.Topic == "" {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s: %s[%d]@%d", o.Kind, o.Topic, o.Partition, o.Offset)
}

func (o Outcome) validate() error {
	switch o.Kind {
	case OutcomeReplayed, OutcomeFound, OutcomeDiscarded, OutcomeReleased, OutcomeByHand:
		return nil
	}
	return fmt.Errorf("outcome %q: use replayed, found, discarded, released or by_hand", o.Kind)
}

// entryDest are the destinations of entryColumns.
func (l *DeadLetter) entryDest() []any {
	return []any{
		&l.EventID, &l.Version, (*string)(&l.Status), &l.Table, &l.AggregateID, &l.AggregateType, &l.EventType, &l.Sequence, &l.CreatedAt,
		&l.DeliverAt, &l.WrittenAt, &l.Topic, &l.ErrorClass, &l.Attempts, &l.Replays, &l.FirstFailedAt, &l.LastFailedAt, &l.Strategy,
		&l.NextAttempt, &l.ClaimedBy, &l.ClaimedUntil, &l.Released, &l.Rule, &l.Waiting, &l.FailureKey, &l.FailureRepeats,
		&l.PurgedAt, &l.Archive, &l.ResolvedAt, &l.job, &l.EditedID,
	}
}

// dest are the destinations of entryColumns and moreColumns.
func (l *DeadLetter) dest() []any {
	return append(l.entryDest(), &l.Payload, &l.ContentType, &l.Headers, &l.ErrorCode, &l.ErrorText, &l.ErrorChain, &l.Metadata, &l.Raw,
		(*string)(&l.Outcome.Kind), &l.Outcome.Topic, &l.Outcome.Partition, &l.Outcome.Offset, &l.Outcome.Note)
}

// Entry is the letter without what only publishing needs.
func (l *DeadLetter) Entry() ChainEntry {
	return ChainEntry{
		EventID: l.EventID, AggregateID: l.AggregateID, AggregateType: l.AggregateType, EventType: l.EventType, Sequence: l.Sequence,
		WrittenAt: l.WrittenAt, Topic: l.Topic, Status: l.Status, Version: l.Version, Released: l.Released, ErrorClass: l.ErrorClass,
		Attempts: l.Attempts, Replays: l.Replays, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt, FirstFailedAt: l.FirstFailedAt,
		NextAttempt: l.NextAttempt, Strategy: l.Strategy, Rule: l.Rule, FailureKey: l.FailureKey, ClaimedBy: l.ClaimedBy, ClaimedUntil: l.ClaimedUntil,
	}
}

// Position is the letter's place in listings.
func (l *DeadLetter) Position() Position { return Position{l.FirstFailedAt, l.EventID} }
