package dlq

import (
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// DeadLetter is an event that was not published, with its errors and its state. Times
// have milliseconds.
type DeadLetter struct {
	// Table is the outbox table, "keyspace.table", or for a dead letter of a
	// subscription "subscription.NAME".
	Table string
	// EventID is the key: one event has one dead letter, however often it fails. A row
	// without an id has the id of RowID.
	EventID gocql.UUID
	// AggregateID is the aggregate in text form.
	AggregateID string
	// AggregateType and EventType are the event's.
	AggregateType, EventType string
	// Sequence is the event's number; 0 in tables without numbers.
	Sequence int64

	// Priority is between MinPriority and MaxPriority; jobs may replay higher ones
	// first. Tags are at most MaxTags of the form TagPattern, in order. Operators
	// change both by Set.
	Priority int
	Tags     []string

	// Payload, ContentType and Headers are the event's, byte for byte. Null is read as
	// nil, empty as empty.
	Payload     []byte
	ContentType string
	Headers     map[string]string
	// CreatedAt and DeliverAt are the event's.
	CreatedAt, DeliverAt time.Time
	// WrittenAt is the write time of the event's CDC row, in microseconds.
	WrittenAt int64
	// Topic is the topic of the event; empty if it is unknown.
	Topic string

	// Status is the current status.
	Status Status
	// Version is the number of changes, from 1.
	Version int64
	// Unblocked reports that the dead letter does not block later events of the
	// aggregate.
	Unblocked bool

	// ErrorClass is the class of the last error, of a small set: breaker_open,
	// attempts_used, record_too_large, topic_invalid, undecodable, behind …
	ErrorClass string
	// ErrorCode, ErrorText and ErrorChain are the last error: the code of the
	// broker or the database, the message, and the messages it wraps.
	ErrorCode, ErrorText string
	ErrorChain           []string
	// Attempts counts attempts to publish, over all its life.
	Attempts int
	// Replays is the number of failed replays. An operator may request one more than
	// the automatic replays.
	Replays int
	// FirstFailedAt and LastFailedAt are the times of the first and the last failure. A
	// failure that could be stored only later has the time at which it was stored.
	FirstFailedAt, LastFailedAt time.Time
	// Strategy chose NextAttempt, the earliest time of the automatic replay; zero means
	// immediately for a pending dead letter. Write stores the given value: Delay(0)
	// from now is the default, and zero is right for an event that the open breaker
	// rejected. Rule is the name of the StrategyRule that chose Strategy.
	Strategy    string
	Rule        string
	NextAttempt time.Time
	// Waiting is the reason why the dead letter is not retried, in plain words; empty
	// if the status and NextAttempt are the reason. WaitsFor returns the complete
	// reason.
	Waiting string
	// FailureKey is the key of the last error, and FailureRepeats the number of
	// consecutive failures with that key.
	FailureKey     string
	FailureRepeats int

	// ClaimedBy owns the claim until ClaimedUntil.
	ClaimedBy    string
	ClaimedUntil time.Time

	// Outcome is set when the dead letter is resolved, at ResolvedAt.
	Outcome    Outcome
	ResolvedAt time.Time

	// PurgedAt is the time of the purge; zero if there was none. A purged dead letter
	// is an outline, archived, and only in the list of its status.
	PurgedAt time.Time
	// Archive is the place of the copy, if the purge made one.
	Archive string
	// EditedID is the id under which the event is published after an edit; zero without
	// one. EventID does not change.
	EditedID gocql.UUID
	// Edit, if EditedID is not zero, replaces the published Payload, ContentType and
	// Headers, and Topic unless its own is empty; these fields do not change. Read and Claim return it, lists do not.
	Edit *Edited

	// Metadata contains source, breaker, lag and host of the relay.
	Metadata map[string]string
	// Raw contains the readable columns of a row that is not an event, in the text form
	// of CQL; blobs as 0x….
	Raw map[string]string

	job    gocql.UUID  // the bulk job that changed it last
	listed []time.Time // each FirstFailedAt with which Write failed
}

// ClassUndecodable is the class of a dead letter whose row is not an event, or is due too late.
const ClassUndecodable = "undecodable"

// MetadataBadRow is the key in Metadata of a dead letter that contains the readable part of a row.
// It stays when a replay fails with another class.
const MetadataBadRow = "bad_row"

// Unread reports whether the dead letter contains only the readable part of a row, and no event
// that can be published: a replay reads the row again. An edit completes it. Lists, which have no
// Metadata, know it by its class alone.
func (l *DeadLetter) Unread() bool {
	return l.EditedID == (gocql.UUID{}) && (l.ErrorClass == ClassUndecodable || l.Metadata[MetadataBadRow] != "")
}

// ErrorClasses are the classes of the errors of relays, and then of subscriptions.
var ErrorClasses = []string{
	"breaker_open", "attempts_used", "record_too_large", "topic_invalid", "topic_not_allowed", ClassUndecodable, "refused", "behind", "interrupted",
	"max_receive", "rejected", "record_gone", "moved", "replay", ClassRedelivery,
}

// OutcomeKind is the way in which a dead letter was resolved.
type OutcomeKind string

// The kinds of outcomes.
const (
	// OutcomeReplayed: it was published.
	OutcomeReplayed OutcomeKind = "replayed"
	// OutcomeRedirected: it was published to another topic.
	OutcomeRedirected OutcomeKind = "redirected"
	// OutcomeFound: it was in its topic already. A redirected one has OutcomeRedirected.
	OutcomeFound OutcomeKind = "found"
	// OutcomeDiscarded: it will never be published.
	OutcomeDiscarded OutcomeKind = "discarded"
	// OutcomeUnblocked: it was published after later events of its aggregate.
	OutcomeUnblocked OutcomeKind = "unblocked"
	// OutcomeByHand: an operator handled it elsewhere.
	OutcomeByHand OutcomeKind = "by_hand"
)

// OutcomeKinds are all kinds of outcomes.
var OutcomeKinds = []OutcomeKind{OutcomeReplayed, OutcomeRedirected, OutcomeFound, OutcomeDiscarded, OutcomeUnblocked, OutcomeByHand}

// Outcome is the result of a resolved dead letter.
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

// Failure is the reason of a failed replay.
type Failure struct {
	// Class, Code, Text and Chain are the fields of DeadLetter with these names.
	Class, Code, Text string
	Chain             []string
	// Attempts is the number of attempts to publish.
	Attempts int
	// Final reports that another attempt cannot help: the dead letter becomes suspended.
	Final bool
	// NextAttempt is the time of the next replay. Zero is Delay from now.
	NextAttempt time.Time
	// Strategy chose NextAttempt, and Rule chose Strategy. Empty means
	// StrategyImmediate.
	Strategy, Rule string
	// MaxReplays is the number of failed replays after which the dead letter is failed,
	// and SameError the number of consecutive equal failures after which it is suspended.
	// Zero means the store's limit for the first, and no limit for the second.
	MaxReplays, SameError int
	// Waiting is the reason why a Final failure is not retried.
	Waiting string
	// Metadata, unless nil, replaces the metadata of the dead letter.
	Metadata map[string]string
}

// ChainEntry is an open dead letter without payload, headers and error texts.
type ChainEntry struct {
	EventID                     gocql.UUID
	AggregateID                 string
	AggregateType, EventType    string
	Sequence, WrittenAt         int64
	Topic                       string
	Status                      Status
	Version                     int64
	Unblocked                   bool
	Priority                    int
	ErrorClass                  string
	Attempts, Replays           int
	CreatedAt                   time.Time
	FirstFailedAt, LastFailedAt time.Time
	NextAttempt                 time.Time
	Strategy, Rule, FailureKey  string
	ClaimedBy                   string
	ClaimedUntil                time.Time
}

// Actor is the person or program that changes a dead letter.
type Actor struct {
	// Name is a person or a program; required.
	Name string `json:"name"`
	// Reason is the actor's reason, for the history.
	Reason string `json:"reason,omitempty"`
	// Job is the bulk job that acts for the actor, zero without one. A job changes a
	// dead letter at most once.
	Job gocql.UUID `json:"job,omitzero"`
	// Version, unless zero, is the version that the actor has seen. A dead letter with
	// another version is not changed, and the error is a *VersionError.
	Version int64 `json:"-"`
}

// of returns the outcome of l, with a note if l was edited. l must come from Claim or Read.
func (o Outcome) of(l *DeadLetter) Outcome {
	if l.Edit != nil && l.Edit.Topic != "" && (o.Kind == OutcomeReplayed || o.Kind == OutcomeFound) {
		o.Kind = OutcomeRedirected
	}
	if l.EditedID != (gocql.UUID{}) && (o.Kind == OutcomeReplayed || o.Kind == OutcomeRedirected) && o.Note == "" {
		o.Note = "edited, as event " + l.EditedID.String()
	}
	return o
}

// String returns the outcome in words, such as "replayed to OrderCreated[3]@17".
func (o Outcome) String() string {
	if o.Topic == "" {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s: %s[%d]@%d", o.Kind, o.Topic, o.Partition, o.Offset)
}

func (o Outcome) validate() error {
	if slices.Contains(OutcomeKinds, o.Kind) {
		return nil
	}
	return fmt.Errorf("outcome %q: use one of %v", o.Kind, OutcomeKinds)
}

// MayBelongTo reports whether the dead letter may be of an event of the aggregate. Where a row was
// unreadable the aggregate may be unknown, which is then the event id.
func (l *DeadLetter) MayBelongTo(aggregate string) bool {
	return l.AggregateID == aggregate || outbox.IDFromText(l.AggregateID).UUID() == l.EventID
}

// entryDest are the destinations of entryColumns.
func (l *DeadLetter) entryDest() []any {
	return []any{
		&l.EventID, &l.Version, (*string)(&l.Status), &l.Table, &l.AggregateID, &l.AggregateType, &l.EventType, &l.Sequence, &l.CreatedAt,
		&l.DeliverAt, &l.WrittenAt, &l.Topic, &l.ErrorClass, &l.Attempts, &l.Replays, &l.FirstFailedAt, &l.LastFailedAt, &l.Strategy,
		&l.NextAttempt, &l.ClaimedBy, &l.ClaimedUntil, &l.Unblocked, &l.Rule, &l.Waiting, &l.FailureKey, &l.FailureRepeats,
		&l.PurgedAt, &l.Archive, &l.ResolvedAt, &l.job, &l.EditedID, &l.Priority, &l.Tags, (*string)(&l.Outcome.Kind),
	}
}

// dest are the destinations of entryColumns and moreColumns.
func (l *DeadLetter) dest() []any {
	return append(l.entryDest(), &l.Payload, &l.ContentType, &l.Headers, &l.ErrorCode, &l.ErrorText, &l.ErrorChain, &l.Metadata, &l.Raw,
		&l.Outcome.Topic, &l.Outcome.Partition, &l.Outcome.Offset, &l.Outcome.Note)
}

// Entry returns the dead letter without payload, headers and error texts.
func (l *DeadLetter) Entry() ChainEntry {
	return ChainEntry{
		EventID: l.EventID, AggregateID: l.AggregateID, AggregateType: l.AggregateType, EventType: l.EventType, Sequence: l.Sequence,
		WrittenAt: l.WrittenAt, Topic: l.Topic, Status: l.Status, Version: l.Version, Unblocked: l.Unblocked, Priority: l.Priority, ErrorClass: l.ErrorClass,
		Attempts: l.Attempts, Replays: l.Replays, CreatedAt: l.CreatedAt, FirstFailedAt: l.FirstFailedAt, LastFailedAt: l.LastFailedAt,
		NextAttempt: l.NextAttempt, Strategy: l.Strategy, Rule: l.Rule, FailureKey: l.FailureKey, ClaimedBy: l.ClaimedBy, ClaimedUntil: l.ClaimedUntil,
	}
}

// Position returns the position of the dead letter in listings.
func (l *DeadLetter) Position() Position { return Position{l.FirstFailedAt, l.EventID} }
