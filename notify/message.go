package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Severity is how soon somebody should look.
type Severity string

// The severities.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Message is one notification.
type Message struct {
	// ID is the same for every attempt and every target, and if a process repeats
	// itself after a crash: receivers may deduplicate on it.
	ID string `json:"id"`
	// Type names what it is about, such as dead_letters.backlog.
	Type string `json:"type"`
	// Key groups messages about the same thing: a pager's incident is opened by
	// the first and closed by the one that is Resolved.
	Key      string   `json:"key"`
	Severity Severity `json:"severity"`
	// Resolved says that it is over.
	Resolved bool `json:"resolved"`
	// Title is one line, Text several; plain text.
	Title string `json:"title"`
	Text  string `json:"text"`
	// URL leads to a page that shows more; may be empty.
	URL string    `json:"url,omitempty"`
	At  time.Time `json:"at"`
	// Data is the same for programs: a webhook's receiver gets it as JSON.
	Data any `json:"data,omitempty"`
}

// body is the message as a webhook sends it.
func (m *Message) body() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, Permanent(fmt.Errorf("notification %s as JSON: %w", m.ID, err))
	}
	return b, nil
}

// Plain returns m with a title of one line and a text without control characters:
// titles become the subjects of mails, and parts of both come from elsewhere.
func (m Message) Plain() Message {
	m.Title, m.Text = line(m.Title), lines(m.Text)
	return m
}

// Target takes messages somewhere. The Dispatcher calls Send from one goroutine
// at a time.
//
// Send should end when ctx does. If it does not, its target gets nothing else
// until it has returned, and the others do not notice. An error is tried again
// unless Permanent made it; After says when. Errors are logged as they are
// returned: no secret may be in them.
type Target interface {
	Send(ctx context.Context, m Message) error
}

// TargetFunc is a Target that is a function.
type TargetFunc func(ctx context.Context, m Message) error

// Send calls f.
func (f TargetFunc) Send(ctx context.Context, m Message) error { return f(ctx, m) }

// permanentError is an error that another attempt does not mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that another attempt does not mend.
func Permanent(err error) error { return permanentError{err} }

// afterError asks for the next attempt at a time of the receiver's choosing.
type afterError struct {
	error
	wait time.Duration
}

func (e afterError) Unwrap() error { return e.error }

// After marks an error whose receiver said how long to wait. The Dispatcher
// waits no longer than its MaxBackoff.
func After(err error, wait time.Duration) error { return afterError{err, wait} }

// WaitOf is how long the receiver asked to wait; 0 if it did not.
func WaitOf(err error) time.Duration {
	var a afterError
	if errors.As(err, &a) {
		return a.wait
	}
	return 0
}

// IsPermanent tells whether Permanent marked an error.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// line is s as one line without control characters: titles become the subjects
// of mails.
func line(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.C, r) {
			return ' '
		}
		return r
	}, s))
}

// lines is s without control characters other than the end of a line.
func lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.Is(unicode.C, r) {
			return ' '
		}
		return r
	}, s)
}
