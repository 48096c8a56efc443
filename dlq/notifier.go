package dlq

import (
	"context"
	"time"

	"github.com/gocql/gocql"
)

// Rule is why there is a Notice.
type Rule string

// The rules. What they compare with is the watcher's configuration.
const (
	// RuleNew: events became dead letters.
	RuleNew Rule = "new"
	// RuleBacklog: more letters are open than the limit.
	RuleBacklog Rule = "backlog"
	// RuleRate: more events become dead letters per minute than the limit.
	RuleRate Rule = "rate"
	// RuleResolution: of the letters of a day fewer were resolved than the limit.
	RuleResolution Rule = "resolution"
	// RuleParked: a letter has been parked for longer than the limit.
	RuleParked Rule = "parked"
)

// Notice is what a Notifier is told.
type Notice struct {
	// ID is the same for every attempt.
	ID   string `json:"id"`
	Rule Rule   `json:"rule"`
	// Key is the same for notices of the same thing, Resolved ones too.
	Key string `json:"key"`
	// Critical is more than a warning.
	Critical bool `json:"critical"`
	// Resolved says that what was noticed since Since is over. RuleNew has none.
	Resolved bool      `json:"resolved"`
	At       time.Time `json:"at"`
	Since    time.Time `json:"since,omitzero"`
	// Value is what was measured, Limit what it was compared with: letters, letters
	// per minute, a share from 0 to 1, or seconds.
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// ErrorClass and EventType are those of RuleNew's group, Count its letters
	// since the notice before; AtLeast says that there may be more.
	ErrorClass string `json:"error_class,omitempty"`
	EventType  string `json:"event_type,omitempty"`
	Count      int    `json:"count,omitempty"`
	AtLeast    bool   `json:"at_least,omitempty"`
	// Samples are a few of the letters.
	Samples []Sample `json:"samples,omitempty"`
	// Title and Text say all this to people.
	Title string `json:"title"`
	Text  string `json:"text"`
	// URL is the console's page; empty if none is configured.
	URL string `json:"url,omitempty"`
}

// Sample is a letter in a Notice. It has nothing of the event's payload.
type Sample struct {
	EventID       gocql.UUID `json:"event_id"`
	AggregateID   string     `json:"aggregate_id"`
	Status        Status     `json:"status"`
	FirstFailedAt time.Time  `json:"first_failed_at"`
	URL           string     `json:"url,omitempty"`
}

// Notifier is the plugin point for who wants to know of dead letters by other
// ways than those of package notify. Package watch calls it.
//
// Notify is called from one goroutine at a time, and its notices wait in a bounded
// queue of its own: it may block, fail or panic without cost to the relay or to
// other notifiers. An error is tried again with growing waits, with the same ID.
// It should end when ctx does.
type Notifier interface {
	Notify(ctx context.Context, n Notice) error
}

// NotifierFunc is a Notifier that is a function.
type NotifierFunc func(ctx context.Context, n Notice) error

// Notify calls f.
func (f NotifierFunc) Notify(ctx context.Context, n Notice) error { return f(ctx, n) }
