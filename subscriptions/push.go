package subscriptions

import (
	"cmp"
	"fmt"
	"slices"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// Defaults and limits of Push.
const (
	DefaultConcurrency = 4
	MaxConcurrency     = 1000
	// maxText bounds title and text, in bytes.
	maxText = 16 << 10
)

// Severities are the values of Push.Severity.
var Severities = []string{"info", "warning", "critical"}

// Push is the delivery of messages to a destination instead of Receive: each message is one
// call, and VisibilityTimeout is the time-out of the call. To is required; other zero values
// mean the documented defaults.
type Push = client.Push

func withPushDefaults(p *Push) *Push {
	if p == nil {
		return nil
	}
	out := *p
	out.Severity = cmp.Or(out.Severity, Severities[0])
	out.Concurrency = cmp.Or(out.Concurrency, DefaultConcurrency)
	return &out
}

// validatePush reports every problem, except problems of expressions and of a destination
// that does not exist.
func validatePush(p *Push, bad func(format string, args ...any)) {
	if p.To == "" || len(p.To) > MaxName {
		bad("push.to %q: name a target of subscriptions.targets, or a plugin", p.To)
	}
	if !slices.Contains(Severities, p.Severity) {
		bad("push.severity %q: use info, warning or critical", p.Severity)
	}
	if p.Concurrency < 1 || p.Concurrency > MaxConcurrency {
		bad("push.concurrency %d: must be 1 to %d", p.Concurrency, MaxConcurrency)
	}
	for field, text := range map[string]string{"title": p.Title, "text": p.Text} {
		if len(text) > maxText {
			bad("push.%s: %d bytes; at most %d are allowed", field, len(text), maxText)
		}
	}
}

// CheckReceive returns the error of Receive for a subscription with push delivery.
func (s *Subscription) CheckReceive() error {
	if s.Push == nil {
		return nil
	}
	return fmt.Errorf("push: subscription %q delivers its messages to %s; remove push to receive them", s.Name, s.Push.To)
}
