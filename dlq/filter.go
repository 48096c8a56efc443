package dlq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gocql/gocql"
)

// Filter selects dead letters. Zero fields select all.
type Filter struct {
	// Status selects by status; empty selects all statuses.
	Status []Status `json:"status,omitempty" nullable:"false"`
	// ErrorClass, EventType and Aggregate select by equality, and so do ErrorCode and Outcome, of
	// which there are no lists, as of MinPriority.
	ErrorClass string `json:"error_class,omitempty"`
	ErrorCode  string `json:"error_code,omitempty"`
	EventType  string `json:"event_type,omitempty"`
	Aggregate  string `json:"aggregate_id,omitempty"`
	// Outcome selects resolved dead letters, and archived ones that were resolved before.
	Outcome OutcomeKind `json:"outcome,omitempty"`
	// Table selects one outbox table, "keyspace.table", or one subscription,
	// "subscription.NAME".
	Table string `json:"table,omitempty"`
	// Tags selects dead letters with all of these tags.
	Tags []string `json:"tags,omitempty" nullable:"false"`
	// MinPriority, unless nil, selects by priority. There is no list of priorities, so
	// a listing reads all dead letters that match the other criteria.
	MinPriority *int `json:"min_priority,omitempty"`
	// Text selects dead letters that contain it, case-insensitive, in the class, code or text
	// of the error, in the event type or in the aggregate id. It has at most MaxText characters.
	// As for MinPriority, a listing reads all that match the other criteria.
	Text string `json:"text,omitempty"`
	// Since and Until bound FirstFailedAt; Until itself is not in.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// After continues a listing after a dead letter.
	After Position `json:"after,omitzero"`
}

// MaxText bounds Filter.Text, in characters.
const MaxText = 200

// Position is the position of a dead letter in listings.
type Position struct {
	FirstFailedAt time.Time  `json:"first_failed_at"`
	EventID       gocql.UUID `json:"event_id"`
}

// ErrStop, returned by the function that List calls, ends the listing without an
// error.
var ErrStop = errors.New("stop")

// latest is after every dead letter.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Validate returns all errors of f.
func (f *Filter) Validate() error {
	var errs []error
	for _, s := range f.Status {
		if !slices.Contains(Statuses, s) {
			errs = append(errs, fmt.Errorf("status %q: use one of %v", s, Statuses))
		}
	}
	if f.Outcome != "" {
		errs = append(errs, Outcome{Kind: f.Outcome}.validate())
	}
	errs = append(errs, checkTags(f.Tags))
	if f.MinPriority != nil {
		errs = append(errs, checkPriority(*f.MinPriority))
	}
	if n := utf8.RuneCountInString(f.Text); n > MaxText {
		errs = append(errs, fmt.Errorf("text of %d characters: at most %d are allowed", n, MaxText))
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		errs = append(errs, fmt.Errorf("since %s is not before until %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

// Empty reports whether f selects every dead letter.
func (f *Filter) Empty() bool {
	return len(f.Status) == 0 && f.ErrorClass == "" && f.EventType == "" && f.Aggregate == "" && f.Table == "" && len(f.Tags) == 0 && f.MinPriority == nil &&
		f.Text == "" && f.ErrorCode == "" && f.Outcome == "" && f.Since.IsZero() && f.Until.IsZero() && f.After.FirstFailedAt.IsZero()
}

// matchesLabels reports whether f selects the priority and tags of the dead letter.
func (f *Filter) matchesLabels(l *DeadLetter) bool {
	for _, t := range f.Tags {
		if !slices.Contains(l.Tags, t) {
			return false
		}
	}
	return f.MinPriority == nil || l.Priority >= *f.MinPriority
}

// contains reports whether f selects the texts of the dead letter.
func (f *Filter) contains(l *DeadLetter) bool {
	if f.ErrorCode != "" && f.ErrorCode != l.ErrorCode {
		return false
	}
	if f.Text == "" {
		return true
	}
	text := strings.ToLower(f.Text)
	return slices.ContainsFunc([]string{l.ErrorClass, l.ErrorCode, l.ErrorText, l.EventType, l.AggregateID}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}

// matches reports whether f selects the dead letter.
func (f *Filter) matches(l *DeadLetter) bool {
	return (len(f.Status) == 0 || slices.Contains(f.Status, l.Status)) && (f.Outcome == "" || f.Outcome == l.Outcome.Kind) && (f.ErrorClass == "" || f.ErrorClass == l.ErrorClass) && (f.EventType == "" || f.EventType == l.EventType) &&
		(f.Aggregate == "" || f.Aggregate == l.AggregateID) && (f.Table == "" || f.Table == l.Table) && f.matchesLabels(l) && !l.FirstFailedAt.Before(f.Since) &&
		(f.Until.IsZero() || l.FirstFailedAt.Before(f.Until)) && f.contains(l)
}
