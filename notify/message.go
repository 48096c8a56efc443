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

// Severity is the urgency of a message.
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
	// Type is the topic of the message, such as dead_letters.backlog.
	Type string `json:"type"`
	// Key groups messages: the first opens an incident in a pager, the one that is
	// Resolved closes it.
	Key      string   `json:"key"`
	Severity Severity `json:"severity"`
	// Resolved is true if the condition has ended.
	Resolved bool `json:"resolved"`
	// Title is one line, Text may have several; both are plain text.
	Title string `json:"title"`
	Text  string `json:"text"`
	// URL is a page with details; optional.
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

// Plain returns m with a title of one line and a text without control
// characters: titles become subjects of e-mails, and both contain text from
// events.
func (m Message) Plain() Message {
	m.Title, m.Text = line(m.Title), lines(m.Text)
	return m
}

// Target delivers messages. The Dispatcher calls Send from one goroutine at a
// time.
//
// Send should return when ctx ends. Otherwise its target receives no further
// message until it returns; other targets are not affected. An error is retried
// unless Permanent made it; After sets the delay. Errors are logged unchanged:
// they must not contain secrets.
type Target interface {
	Send(ctx context.Context, m Message) error
}

// TargetFunc is a function as a Target.
type TargetFunc func(ctx context.Context, m Message) error

// Send calls f.
func (f TargetFunc) Send(ctx context.Context, m Message) error { return f(ctx, m) }

// permanentError is an error that must not be retried.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error that must not be retried.
func Permanent(err error) error { return permanentError{err} }

// afterError is an error with a delay requested by the receiver.
type afterError struct {
	error
	wait time.Duration
}

func (e afterError) Unwrap() error { return e.error }

// After marks an error with the delay that the receiver requested. The
// Dispatcher waits at most its MaxBackoff.
func After(err error, wait time.Duration) error { return afterError{err, wait} }

// unavailableError is an error whose cause is the receiver.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

// Unavailable marks an error whose cause is the receiver, not the message: it cannot be reached,
// or refuses all messages for some time.
func Unavailable(err error) error { return unavailableError{err} }

// IsUnavailable reports whether Unavailable marked an error.
func IsUnavailable(err error) bool {
	var u unavailableError
	return errors.As(err, &u)
}

// RequestedWait returns the delay that the receiver requested; 0 for none.
func RequestedWait(err error) time.Duration {
	var a afterError
	if errors.As(err, &a) {
		return a.wait
	}
	return 0
}

// IsPermanent reports whether Permanent marked an error.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// line returns s as one line without control characters.
func line(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.C, r) {
			return ' '
		}
		return r
	}, s))
}

// lines returns s without control characters except line ends.
func lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.Is(unicode.C, r) {
			return ' '
		}
		return r
	}, s)
}
