package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

const (
	defaultTitle = `{{event_type}} {{aggregate_type}} {{aggregate_id}}`
	defaultText  = `{{topic}}[{{partition}}]@{{offset}}, sequence {{sequence}}, event {{event_id}}, {{time}}
{{data == null ? data_text : json(data)}}`
	// maxTitle bounds a title, in characters.
	maxTitle = 200
)

// Destinations are the possible values of subscriptions.Push.To, by name. A name is that of
// a target or of a plugin.
type Destinations struct {
	Targets map[string]notify.Target
	Plugins map[string]Plugin
}

// Validate reports the names that are used twice.
func (d *Destinations) Validate() error {
	var errs []error
	for name := range d.Plugins {
		if _, twice := d.Targets[name]; twice {
			errs = append(errs, fmt.Errorf("plugin %s: a target has that name too", name))
		}
	}
	return errors.Join(errs...)
}

// Plugin returns the destination of a subscription with valid fields, with its title and text.
// An error names each bad field.
func (d *Destinations) Plugin(p *subscriptions.Push) (Plugin, error) {
	if plugin, ok := d.Plugins[p.To]; ok {
		if p.Title != "" || p.Text != "" {
			return nil, fmt.Errorf("push: title and text are not allowed for the plugin %s, which receives the event; remove them", p.To)
		}
		return plugin, nil
	}
	target, ok := d.Targets[p.To]
	if !ok {
		return nil, fmt.Errorf("push.to %q: this process has no such target or plugin; use one of %s", p.To, strings.Join(d.names(), ", "))
	}
	title, err := filter.CompileText(cmp.Or(p.Title, defaultTitle))
	if err != nil {
		err = fmt.Errorf("push.title: %w", err)
	}
	text, bad := filter.CompileText(cmp.Or(p.Text, defaultText))
	if bad != nil {
		err = errors.Join(err, fmt.Errorf("push.text: %w", bad))
	}
	if err != nil {
		return nil, err
	}
	return &notice{target: target, title: title, text: text, severity: notify.Severity(p.Severity)}, nil
}

// names returns the possible destinations.
func (d *Destinations) names() []string {
	out := append(slices.Collect(maps.Keys(d.Targets)), slices.Collect(maps.Keys(d.Plugins))...)
	slices.Sort(out)
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

// notice is the Plugin of a target: it sends a message with title and text about the event.
type notice struct {
	target      notify.Target
	title, text *filter.Text
	severity    notify.Severity
}

// CanHandle is always true.
func (n *notice) CanHandle(Event) bool { return true }

// Process sends the message.
func (n *notice) Process(ctx context.Context, e Event) error {
	title := n.title.Of(&e.Event, e.Subscription)
	if r := []rune(title); len(r) > maxTitle {
		title = string(r[:maxTitle]) + "…"
	}
	event := e.ForJSON()
	m := notify.Message{
		ID: e.DeliveryID, Type: "event." + e.Subscription, Key: e.Subscription + "/" + e.DeliveryID, Severity: n.severity, Title: title, Text: n.text.Of(&e.Event, e.Subscription),
		At: time.Now().UTC(), Data: &event,
	}
	return n.target.Send(ctx, m.Plain())
}
