package react

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
)

// notice is the Plugin of a target: it sends the message that the templates of
// the rule render.
type notice struct {
	target      notify.Target
	title, text *text
	severity    notify.Severity
}

// CanHandle is always true.
func (n *notice) CanHandle(Event) bool { return true }

// Process renders the message and sends it. A template error is permanent.
func (n *notice) Process(ctx context.Context, e Event) error {
	v := view(&e.Event, e.Rule)
	title, err := n.title.of(v)
	if err != nil {
		return Permanent(fmt.Errorf("title: %w", err))
	}
	words, err := n.text.of(v)
	if err != nil {
		return Permanent(fmt.Errorf("text: %w", err))
	}
	if r := []rune(title); len(r) > maxTitle {
		title = string(r[:maxTitle]) + "…"
	}
	m := notify.Message{
		ID: e.DeliveryID, Type: "event." + e.Rule, Key: e.Rule + "/" + e.DeliveryID, Severity: n.severity, Title: title, Text: words,
		At: time.Now().UTC(), Data: &e.Event,
	}
	return n.target.Send(ctx, m.Plain())
}
