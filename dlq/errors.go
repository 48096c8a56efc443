package dlq

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

var (
	// ErrNotFound is returned for an event without a dead letter.
	ErrNotFound = errors.New("no dead letter")
	// ErrRefused is in the chain of every *RefusedError.
	ErrRefused = errors.New("refused")
	// ErrOtherRecord is returned by Write if the dead letter with the id is of another record of a
	// subscription, or of an event of another aggregate. Nothing was changed.
	ErrOtherRecord = errors.New("the dead letter with this id is of another record, or of an event of another aggregate")
)

// RefusedError reports that the status of a dead letter does not allow the action.
// Nothing was changed.
type RefusedError struct {
	EventID gocql.UUID
	Action  Action
	// Status is the status of the dead letter.
	Status Status
	// ClaimedBy has it until ClaimedUntil, if Status is Processing.
	ClaimedBy    string
	ClaimedUntil time.Time
	// Hint describes the remedy; it may be empty.
	Hint string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s dead letter %s: refused, its status is %s", e.Action, e.EventID, e.Status)
	if e.Status == Processing {
		s += fmt.Sprintf(", claimed by %s until %s", e.ClaimedBy, e.ClaimedUntil.UTC().Format(time.RFC3339))
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// OtherTableError reports that an event cannot have a dead letter, because one of
// another table has the same event id, and the event id is the key of all tables.
// Nothing was changed.
type OtherTableError struct {
	EventID gocql.UUID
	// Table is the table of the event, Other that of the stored dead letter.
	Table, Other string
}

// Error names both tables and the remedy.
func (e *OtherTableError) Error() string {
	return fmt.Sprintf("event %s of %s cannot become a dead letter: %s has one with the same event id; use ids that are unique over all tables, such as UUIDs, or give one of them a relay with a scylla.keyspace of its own",
		e.EventID, e.Table, e.Other)
}

// permanent reports whether a retry cannot help: the statement is invalid or forbidden,
// or the fence prevents it.
func permanent(err error) bool {
	_, other := errors.AsType[*OtherTableError](err)
	return other || db.Permanent(err)
}

// VersionError reports that a dead letter does not have the version that an Actor
// expected. Nothing was changed.
type VersionError struct {
	EventID    gocql.UUID
	Want, Have int64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("dead letter %s is at version %d, not %d: it was changed concurrently", e.EventID, e.Have, e.Want)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *VersionError) Is(target error) bool { return target == ErrRefused }

// checkVersion returns a *VersionError unless l has the version that the actor has
// seen.
func (by *Actor) checkVersion(l *DeadLetter) error {
	if by.Version == 0 || by.Version == l.Version {
		return nil
	}
	return &VersionError{EventID: l.EventID, Want: by.Version, Have: l.Version}
}

// newRefusedError returns the error of an action that the status of l does not allow.
func newRefusedError(action Action, l *DeadLetter, hint string) error {
	return &RefusedError{
		EventID: l.EventID, Action: action, Status: l.Status, ClaimedBy: l.ClaimedBy, ClaimedUntil: l.ClaimedUntil, Hint: hint,
	}
}

// may returns a *RefusedError unless the status of l allows the action.
func may(action Action, l *DeadLetter) error {
	if _, ok := transitions[action][l.Status]; !ok {
		return newRefusedError(action, l, "")
	}
	return nil
}
