package dlq

import (
	"time"

	"github.com/gocql/gocql"
)

// Rule is the reason for a Notice.
type Rule string

// The rules. The watcher's configuration contains their limits.
const (
	// RuleNew: events became dead letters.
	RuleNew Rule = "new"
	// RuleBacklog: the number of open dead letters is above the limit.
	RuleBacklog Rule = "backlog"
	// RuleRate: the number of new dead letters per minute is above the limit.
	RuleRate Rule = "rate"
	// RuleResolution: the share of resolved dead letters of a day is below the limit.
	RuleResolution Rule = "resolution"
	// RuleBlocked: a dead letter has been blocked for longer than the limit.
	RuleBlocked Rule = "blocked"
	// RuleOutage: the broker has not accepted the events of a relay for longer than the limit.
	RuleOutage Rule = "outage"
)

// Notice is a notification about dead letters: the data of its message.
type Notice struct {
	// ID is the same for every attempt.
	ID   string `json:"id"`
	Rule Rule   `json:"rule"`
	// Key is the same for notices of the same thing, Resolved ones too.
	Key string `json:"key"`
	// Critical is more than a warning.
	Critical bool `json:"critical"`
	// Resolved reports the end of the condition that began at Since. RuleNew has no
	// such notice.
	Resolved bool      `json:"resolved"`
	At       time.Time `json:"at"`
	Since    time.Time `json:"since,omitzero"`
	// Value is the measured value, Limit the limit: dead letters, dead letters per
	// minute, a share from 0 to 1, or seconds.
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	// ErrorClass and EventType identify the group of RuleNew, Count is the number of
	// its dead letters since the previous notice; AtLeast reports that there may be
	// more.
	ErrorClass string `json:"error_class,omitempty"`
	EventType  string `json:"event_type,omitempty"`
	Count      int    `json:"count,omitempty"`
	// Subscription is the subscription whose dead letters RuleNew found, empty for dead
	// letters of relays.
	Subscription string `json:"subscription,omitempty"`
	AtLeast      bool   `json:"at_least,omitempty"`
	// Samples are a few of the dead letters.
	Samples []Sample `json:"samples,omitempty"`
	// Title and Text describe the notice for people.
	Title string `json:"title"`
	Text  string `json:"text"`
	// URL is the console's page about the subject of the notice; empty if no console is
	// configured. Runbook is the page that describes what to do.
	URL     string `json:"url,omitempty"`
	Runbook string `json:"runbook"`
}

// Sample is a dead letter in a Notice. It contains nothing of the payload, but of the error that
// the broker, the relay or a consumer reported.
type Sample struct {
	EventID       gocql.UUID `json:"event_id"`
	AggregateID   string     `json:"aggregate_id"`
	Status        Status     `json:"status"`
	FirstFailedAt time.Time  `json:"first_failed_at"`
	// Error is the beginning of the last error.
	Error string `json:"error,omitempty"`
	URL   string `json:"url,omitempty"`
}
