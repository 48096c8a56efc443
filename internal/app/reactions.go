package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// Reactions are the rules of a configuration of the former command react.
type Reactions struct {
	// Group is the prefix of their consumer groups.
	Group string         `yaml:"group"`
	Rules []reactionRule `yaml:"rules"`
}

// reactionRule is a rule with the defaults of its time for omitted keys.
type reactionRule struct {
	Name        string        `yaml:"name"`
	Topics      []string      `yaml:"topics"`
	Types       []string      `yaml:"types"`
	When        string        `yaml:"when"`
	To          string        `yaml:"to"`
	Title       string        `yaml:"title"`
	Text        string        `yaml:"text"`
	Severity    string        `yaml:"severity"`
	Timeout     time.Duration `yaml:"timeout"`
	Attempts    int           `yaml:"attempts"`
	Backoff     time.Duration `yaml:"backoff"`
	MaxBackoff  time.Duration `yaml:"max_backoff"`
	Concurrency int           `yaml:"concurrency"`
	Queue       int           `yaml:"queue"` // the engine bounds its memory itself
	Order       string        `yaml:"order"`
	From        string        `yaml:"from"`
}

// subscription returns the subscription that delivers what the rule did.
func (r *reactionRule) subscription() (subscriptions.Subscription, error) {
	s := subscriptions.Subscription{
		Name: r.Name, Topics: r.Topics, Types: r.Types, Filter: r.When, VisibilityTimeout: max(cmp.Or(r.Timeout, 10*time.Second), subscriptions.MinVisibilityTimeout),
		MaxReceive: cmp.Or(r.Attempts, 8), Backoff: r.Backoff, MaxBackoff: r.MaxBackoff,
		Push: &subscriptions.Push{To: r.To, Title: r.Title, Text: r.Text, Severity: r.Severity, Concurrency: r.Concurrency},
	}
	var errs []error
	switch r.Order {
	case "", "aggregate":
		s.Ordering = subscriptions.OrderingKey
	case "none":
		s.Ordering = subscriptions.OrderingNone
	default:
		errs = append(errs, fmt.Errorf("order %q: use aggregate or none", r.Order))
	}
	switch r.From {
	case "", "now":
		s.Start = subscriptions.StartLatest
	case "start":
		s.Start = subscriptions.StartEarliest
	default:
		errs = append(errs, fmt.Errorf("from %q: use now or start", r.From))
	}
	s = s.WithDefaults()
	errs = append(errs, s.Validate())
	if s.Filter != "" {
		if _, err := filter.Compile(s.Filter); err != nil {
			errs = append(errs, fmt.Errorf("when: %w", err))
		}
	}
	for _, field := range [][2]string{{"title", r.Title}, {"text", r.Text}} {
		if _, err := filter.CompileText(field[1]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field[0], err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("rule %s: %w", cmp.Or(r.Name, "without a name"), err)
	}
	return s, nil
}

// ReadReactions reads the section react of a configuration file.
func ReadReactions(in io.Reader) (*Reactions, error) {
	var file struct {
		React yaml.Node `yaml:"react"`
	}
	if err := yaml.NewDecoder(in).Decode(&file); err != nil {
		return nil, fmt.Errorf("react: %w", err)
	}
	r := &Reactions{}
	if !file.React.IsZero() {
		text, err := yaml.Marshal(&file.React)
		if err != nil {
			return nil, fmt.Errorf("react: %w", err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(text))
		dec.KnownFields(true)
		var all struct {
			Reactions      `yaml:",inline"`
			Targets        yaml.Node `yaml:"targets"`
			WebhookSecrets yaml.Node `yaml:"webhook_secrets"`
			KeepFailed     yaml.Node `yaml:"keep_failed"`
		}
		if err := dec.Decode(&all); err != nil {
			return nil, fmt.Errorf("react: %w", err)
		}
		*r = all.Reactions
	}
	if len(r.Rules) == 0 {
		return nil, errors.New("react.rules: the file contains no rules")
	}
	r.Group = cmp.Or(r.Group, "outbox-react")
	return r, nil
}

// Imported is a rule that became a subscription.
type Imported struct {
	Subscription subscriptions.Subscription
	// Existed is true if there was a subscription of that name, which was not changed.
	Existed bool
	// Partitions is the number of partitions that continue at the committed offset of the
	// rule's consumer group.
	Partitions int
	// Unknown is the error of a destination that this process does not have; empty if it
	// has it.
	Unknown string
}

// Subscriptions returns the subscriptions of the rules. The error contains every problem.
func (r *Reactions) Subscriptions() ([]subscriptions.Subscription, error) {
	var out []subscriptions.Subscription
	var errs []error
	seen := make(map[string]bool)
	for i := range r.Rules {
		s, err := r.Rules[i].subscription()
		if err == nil && seen[s.Name] {
			err = fmt.Errorf("rule %s: the name is taken", s.Name)
		}
		seen[s.Name] = true
		errs = append(errs, err)
		out = append(out, s)
	}
	return out, errors.Join(errs...)
}

// Importer converts rules to subscriptions.
type Importer struct {
	Session      *gocql.Session
	Keyspace     string
	Store        *store.Store
	Kafka        *kadm.Client
	Destinations push.Destinations
	DryRun       bool
}

// Import creates the subscription of a rule. It begins at the committed offsets of the rule's
// consumer group and, in partitions without one, at the time at which the rule began. An
// existing subscription is not changed, so that the import can be repeated.
func (i *Importer) Import(ctx context.Context, group string, s subscriptions.Subscription) (Imported, error) {
	out := Imported{Subscription: s}
	if _, err := i.Destinations.Plugin(s.Push); err != nil {
		out.Unknown = err.Error()
	}
	switch old, err := i.Store.Get(ctx, s.Name); {
	case err == nil:
		out.Subscription, out.Existed = old.Subscription, true
		return out, nil
	case !errors.Is(err, subscriptions.ErrNotFound):
		return out, err
	}
	group += "." + s.Name
	described, err := i.Kafka.DescribeGroups(ctx, group)
	if err == nil {
		err = described[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // the rule never ran
		return out, fmt.Errorf("rule %s: describe consumer group %s: %w", s.Name, group, err)
	}
	if n := len(described[group].Members); n > 0 {
		return out, fmt.Errorf("rule %s: consumer group %s has %d members: stop all processes of the command react first", s.Name, group, n)
	}
	offsets, err := i.Kafka.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return out, fmt.Errorf("rule %s: read the offsets of consumer group %s: %w", s.Name, group, err)
	}
	var seeks []subscriptions.Seek
	for _, o := range offsets.Sorted() {
		if o.Err != nil {
			return out, fmt.Errorf("rule %s: read the offset of %s/%d: %w", s.Name, o.Topic, o.Partition, o.Err)
		}
		if o.At >= 0 {
			seeks = append(seeks, subscriptions.Seek{To: "offset", Topic: o.Topic, Partition: o.Partition, Offset: o.At})
		}
	}
	out.Partitions = len(seeks)
	var since time.Time
	switch err := i.Session.Query("SELECT since FROM "+i.Keyspace+".delivery_rules WHERE rule = ?", s.Name).WithContext(ctx).Scan(&since); {
	case errors.Is(err, gocql.ErrNotFound): // it never ran
	case err != nil:
		return out, fmt.Errorf("rule %s: read the time of its start: %w", s.Name, err)
	case since.UnixMilli() <= 0:
		s.Start = subscriptions.StartEarliest
	default:
		s.Start = since.UTC().Format(time.RFC3339Nano)
	}
	out.Subscription = s
	if i.DryRun {
		return out, nil
	}
	r, err := i.Store.Create(ctx, s, seeks, "import-reactions")
	if err != nil {
		return out, fmt.Errorf("rule %s: %w", s.Name, err)
	}
	out.Subscription = r.Subscription
	return out, nil
}
