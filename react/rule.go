package react

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// Defaults of Rule.
const (
	DefaultTimeout     = 10 * time.Second
	DefaultAttempts    = 8
	DefaultBackoff     = time.Second
	DefaultMaxBackoff  = 5 * time.Minute
	DefaultConcurrency = 4
	DefaultQueue       = 1000
)

// Values of Rule.Order and Rule.From.
const (
	// OrderAggregate delivers the events of an aggregate one at a time, in the
	// order of their topic.
	OrderAggregate = "aggregate"
	// OrderNone delivers events as soon as there is a place.
	OrderNone = "none"
	// FromNow: events since the rule was first run.
	FromNow = "now"
	// FromStart: all events that the topics have.
	FromStart = "start"
)

// Rule selects events and their plugin. Name, Topics and To are required; other
// zero values mean defaults.
type Rule struct {
	// Name is the label of the rule in metrics and the log, and part of its
	// consumer group and its delivery ids. A new name is a new rule. Letters,
	// digits, - and _, at most 60.
	Name string `setting:"name"`
	// Topics are names, or patterns with * for any characters.
	Topics []string `setting:"topics"`
	// Types are event types, or patterns; empty for all.
	Types []string `setting:"types"`
	// When is a CEL expression over the event; only events with the value true are
	// delivered. Empty selects all. An undecidable event becomes a failed
	// delivery.
	When string `setting:"when"`
	// To names a target or a plugin of the Config.
	To string `setting:"to"`

	// Title and Text are templates of the message to a target; a plugin in Go has
	// none.
	Title string `setting:"title"`
	Text  string `setting:"text"`
	// Severity is info, warning or critical; for pagers. Default info.
	Severity string `setting:"severity"`

	// Timeout bounds one attempt. Default 10 s.
	Timeout time.Duration `setting:"timeout"`
	// Attempts is the maximum number of attempts before a delivery fails. Default
	// 8.
	Attempts int `setting:"attempts"`
	// Backoff is the wait after the first attempt; it doubles up to MaxBackoff, and
	// each is shorter or longer by up to half by chance. Default 1 s and 5 min.
	Backoff    time.Duration `setting:"backoff"`
	MaxBackoff time.Duration `setting:"max_backoff"`
	// Concurrency is the number of concurrent calls of the plugin, in each
	// process. Default 4.
	Concurrency int `setting:"concurrency"`
	// Queue bounds the events in memory, including retries; a full queue pauses
	// reading. Default 1,000.
	Queue int `setting:"queue"`
	// Order is aggregate or none. Default aggregate.
	Order string `setting:"order"`
	// From is now or start: the first events of a new rule. Default now.
	From string `setting:"from"`
}

func (r Rule) withDefaults() Rule {
	r.Severity = cmp.Or(r.Severity, string(notify.Info))
	r.Timeout = cmp.Or(r.Timeout, DefaultTimeout)
	r.Attempts = cmp.Or(r.Attempts, DefaultAttempts)
	r.Backoff = cmp.Or(r.Backoff, DefaultBackoff)
	r.MaxBackoff = cmp.Or(r.MaxBackoff, max(DefaultMaxBackoff, r.Backoff))
	r.Concurrency = cmp.Or(r.Concurrency, DefaultConcurrency)
	r.Queue = cmp.Or(r.Queue, DefaultQueue)
	r.Order = cmp.Or(r.Order, OrderAggregate)
	r.From = cmp.Or(r.From, FromNow)
	return r
}

// ruleName is the pattern of names.
var ruleName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,60}$`)

// validate reports every problem except those of expression, templates and To.
func (r *Rule) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !ruleName.MatchString(r.Name) {
		bad("name %q: use letters, digits, - and _, at most 60", r.Name)
	}
	if len(r.Topics) == 0 {
		bad("topics: at least one is required; * matches any characters")
	}
	for field, patterns := range map[string][]string{"topics": r.Topics, "types": r.Types} {
		for _, p := range patterns {
			if _, err := path.Match(p, "x"); err != nil || p == "" {
				bad("%s %q: is no pattern; write names, with * for any characters", field, p)
			}
		}
	}
	if !slices.Contains([]string{string(notify.Info), string(notify.Warning), string(notify.Critical)}, r.Severity) {
		bad("severity %q: use info, warning or critical", r.Severity)
	}
	if r.Timeout <= 0 || r.Backoff <= 0 || r.MaxBackoff < r.Backoff {
		bad("timeout %s, backoff %s, max_backoff %s: must be positive, and max_backoff not below backoff", r.Timeout, r.Backoff, r.MaxBackoff)
	}
	if r.Attempts < 1 {
		bad("attempts %d: must be at least 1", r.Attempts)
	}
	if r.Concurrency < 1 || r.Concurrency > 1000 {
		bad("concurrency %d: must be 1 to 1000", r.Concurrency)
	}
	if r.Queue < 1 || r.Queue > 100_000 {
		bad("queue %d: must be 1 to 100000", r.Queue)
	}
	if r.Order != OrderAggregate && r.Order != OrderNone {
		bad("order %q: use aggregate or none", r.Order)
	}
	if r.From != FromNow && r.From != FromStart {
		bad("from %q: use now or start", r.From)
	}
	return errors.Join(errs...)
}

// compiled is a rule with its expression and templates. It is safe for
// concurrent use.
type compiled struct {
	Rule
	when   *filter.Expression // nil is always true
	plugin Plugin
}

// compileRule checks a rule whole. Errors name the rule and the field.
func (c *Config) compileRule(r Rule) (*compiled, error) {
	r = r.withDefaults()
	errs := []error{r.validate()}
	out := &compiled{Rule: r}
	var err error
	if strings.TrimSpace(r.When) != "" {
		if out.when, err = filter.Compile(r.When); err != nil {
			errs = append(errs, fmt.Errorf("when: %w", err))
		}
	}
	if out.plugin, err = c.pluginOf(&r); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("rule %s: %w", cmp.Or(r.Name, "without a name"), err)
	}
	return out, nil
}

// pluginOf returns the destination of the rule.
func (c *Config) pluginOf(r *Rule) (Plugin, error) {
	if p, ok := c.Plugins[r.To]; ok {
		if r.Title != "" || r.Text != "" {
			return nil, fmt.Errorf("title and text: not allowed for the plugin %s, which receives the event; remove them", r.To)
		}
		return p, nil
	}
	target, ok := c.Targets[r.To]
	if !ok {
		return nil, fmt.Errorf("to %q: no such target or plugin; use one of %s", r.To, strings.Join(c.names(), ", "))
	}
	title, err := parseText("title", cmp.Or(r.Title, defaultTitle))
	words, terr := parseText("text", cmp.Or(r.Text, defaultText))
	if err := errors.Join(err, terr); err != nil {
		return nil, err
	}
	return &notice{target: target, title: title, text: words, severity: notify.Severity(r.Severity)}, nil
}

// matches reports whether the rule's plugin receives the event. An error means
// that this is undecidable.
func (r *compiled) matches(e *kafkarecord.Event) (ok bool, err error) {
	if len(r.Types) > 0 && !slices.ContainsFunc(r.Types, func(p string) bool { ok, _ := path.Match(p, e.Type); return ok }) {
		return false, nil
	}
	if r.when != nil {
		if ok, err := r.when.Holds(e); !ok || err != nil {
			return false, err
		}
	}
	return r.canHandle(e), nil
}

// canHandle calls CanHandle. After a panic the plugin receives the event, so
// that the failure is recorded.
func (r *compiled) canHandle(e *kafkarecord.Event) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = true
		}
	}()
	return r.plugin.CanHandle(Event{Event: *e, Rule: r.Name})
}

// lane returns the key of events that are delivered in order.
func (r *compiled) lane(e *kafkarecord.Event) string {
	if r.Order == OrderNone {
		return ""
	}
	return cmp.Or(e.AggregateID, e.Key)
}

// expressions returns the topics in the form of the Kafka client; false if they
// are literal names.
func (r *Rule) expressions() (out []string, patterns bool) {
	if !strings.Contains(strings.Join(r.Topics, ""), "*") {
		return r.Topics, false
	}
	for _, t := range r.Topics {
		out = append(out, "^"+strings.ReplaceAll(regexp.QuoteMeta(t), `\*`, `.*`)+"$")
	}
	return out, true
}
