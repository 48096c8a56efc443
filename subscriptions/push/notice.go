package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
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

// Plugin returns the destination of a subscription with valid fields, with its templates. An
// error names each bad field.
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
	title, err := parseText("push.title", cmp.Or(p.Title, defaultTitle))
	words, terr := parseText("push.text", cmp.Or(p.Text, defaultText))
	if err := errors.Join(err, terr); err != nil {
		return nil, err
	}
	return &notice{target: target, title: title, text: words, severity: notify.Severity(p.Severity)}, nil
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

// notice is the Plugin of a target: it sends the message that the templates render.
type notice struct {
	target      notify.Target
	title, text *text
	severity    notify.Severity
}

// CanHandle is always true.
func (n *notice) CanHandle(Event) bool { return true }

// Process renders the message and sends it. A template error is permanent.
func (n *notice) Process(ctx context.Context, e Event) error {
	v := view(&e.Event, e.Subscription)
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
		ID: e.DeliveryID, Type: "event." + e.Subscription, Key: e.Subscription + "/" + e.DeliveryID, Severity: n.severity, Title: title, Text: words,
		At: time.Now().UTC(), Data: &e.Event,
	}
	return n.target.Send(ctx, m.Plain())
}
