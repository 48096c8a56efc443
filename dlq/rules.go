package dlq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/glob"
)

// StrategyRule chooses the strategy of dead letters. Every criterion that is not empty
// must match; a rule without criteria matches all.
type StrategyRule struct {
	// Name is shown with the dead letter; required and unique.
	Name string `setting:"name"`

	// ErrorClasses, ErrorCodes, EventTypes, AggregateTypes and Tables match if one of
	// their patterns does; * and ? match any text, as in glob.Match.
	ErrorClasses   []string `setting:"error_classes"`
	ErrorCodes     []string `setting:"error_codes"`
	EventTypes     []string `setting:"event_types"`
	AggregateTypes []string `setting:"aggregate_types"`
	Tables         []string `setting:"tables"`
	// FailedReplays is the least number of failed replays, and OlderThan the least time
	// since the first failure. Use them to escalate.
	FailedReplays int           `setting:"failed_replays"`
	OlderThan     time.Duration `setting:"older_than"`

	// Strategy is one of StrategyImmediate, StrategyScheduled, StrategyConditional,
	// StrategyManual and StrategyBreakerClose; required.
	Strategy string `setting:"strategy"`
	// Delays are the delays before the first, second … replay of an immediate or
	// conditional dead letter; the last one applies to all further replays. Default
	// DefaultDelays.
	Delays []time.Duration `setting:"delays"`
	// Windows are the times when windows of a scheduled dead letter begin, as cron
	// expressions of five fields in TimeZone, an IANA name. WindowLength is the
	// duration of each window. Defaults DefaultWindows, UTC and DefaultWindowLength.
	Windows      []string      `setting:"windows"`
	TimeZone     string        `setting:"time_zone"`
	WindowLength time.Duration `setting:"window_length"`
	// Conditions are the conditions that must hold for a conditional dead letter; empty
	// means all of Conditions.
	Conditions []string `setting:"conditions"`
	// MaxReplays is the number of failed replays after which a dead letter is failed,
	// and SameError the number of consecutive equal failures, the first one included,
	// after which it is suspended. Defaults DefaultMaxReplays and DefaultSameError;
	// immediate dead letters, whose delays are limited, have no default for SameError.
	// -1 means no limit.
	MaxReplays int `setting:"max_replays"`
	SameError  int `setting:"same_error"`
}

// Defaults of StrategyRule.
const (
	DefaultSameError    = 3
	DefaultWindowLength = time.Hour
)

// DefaultWindows are 02:00, 03:00 and 04:00.
var DefaultWindows = []string{"0 2 * * *", "0 3 * * *", "0 4 * * *"}

// The conditions of conditional dead letters. The relay checks them.
const (
	ConditionBreaker  = "breaker_closed"
	ConditionBroker   = "broker_healthy"
	ConditionDatabase = "database_latency"
	ConditionCPU      = "cpu"
	ConditionMemory   = "memory"
)

// Conditions are all conditions.
var Conditions = []string{ConditionBreaker, ConditionBroker, ConditionDatabase, ConditionCPU, ConditionMemory}

// RuleNeedsAPerson is the last of DefaultStrategyRules.
const RuleNeedsAPerson = "needs-a-person"

// DefaultStrategyRules returns the rules that follow the configured ones; the last
// matches all dead letters.
func DefaultStrategyRules() []StrategyRule {
	return []StrategyRule{
		{Name: "breaker-open", ErrorClasses: []string{"breaker_open"}, Strategy: StrategyBreakerClose},
		{Name: "quota", ErrorClasses: []string{"attempts_used"}, ErrorCodes: []string{"THROTTLING_QUOTA_EXCEEDED"}, Strategy: StrategyScheduled},
		{
			Name: "broker-unwell", ErrorClasses: []string{"attempts_used"}, Strategy: StrategyConditional,
			ErrorCodes: []string{"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "COORDINATOR_*"},
		},
		{Name: "transient", ErrorClasses: []string{"attempts_used"}, Strategy: StrategyImmediate},
		{Name: RuleNeedsAPerson, Strategy: StrategyManual},
	}
}

// Rules choose strategies. They are safe for concurrent use.
type StrategyRules struct{ rules []*compiled }

// compiled is a rule that was checked.
type compiled struct {
	StrategyRule
	schedule *schedule
}

// NewStrategyRules checks rules and appends DefaultStrategyRules. The error lists every
// problem, with its rule and the fix.
func NewStrategyRules(rules []StrategyRule) (*StrategyRules, error) {
	var out StrategyRules
	var errs []error
	seen := make(map[string]bool)
	own := len(rules)
	for i, r := range slices.Concat(rules, DefaultStrategyRules()) {
		if i >= own && seen[r.Name] {
			continue // a rule of that name takes its place
		}
		name := r.Name
		if name == "" {
			name = fmt.Sprintf("number %d", i+1)
		}
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("rule %s: "+format, append([]any{name}, args...)...))
		}
		if r.Name == "" || len(r.Name) > 60 {
			bad("name %q: give it one of up to 60 characters", r.Name)
		}
		if seen[r.Name] {
			bad("the name is not unique: rename one rule")
		}
		seen[r.Name] = true
		out.rules = append(out.rules, r.compile(bad))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &out, nil
}

// compile checks the rule, which is the caller's copy, and fills in defaults.
func (r StrategyRule) compile(bad func(format string, args ...any)) *compiled {
	c := &compiled{StrategyRule: r}
	for _, list := range []struct {
		key    string
		values []string
	}{
		{"error_classes", r.ErrorClasses},
		{"error_codes", r.ErrorCodes},
		{"event_types", r.EventTypes},
		{"aggregate_types", r.AggregateTypes},
		{"tables", r.Tables},
	} {
		for _, v := range list.values {
			if !glob.Valid(v) {
				bad("%s: %q is not a pattern: write a name, with * and ? for any text", list.key, v)
			}
		}
	}
	if r.FailedReplays < 0 || r.FailedReplays > 1000 {
		bad("failed_replays %d is not between 0 and 1000", r.FailedReplays)
	}
	if r.OlderThan < 0 {
		bad("older_than %s is negative: write a duration such as 2h", r.OlderThan)
	}
	c.MaxReplays = cmp.Or(r.MaxReplays, DefaultMaxReplays)
	if c.MaxReplays < 1 || c.MaxReplays > 1000 {
		bad("max_replays %d is not between 1 and 1000: nothing is replayed for ever", r.MaxReplays)
	}
	if r.Strategy != StrategyImmediate && r.Strategy != StrategyBreakerClose {
		c.SameError = cmp.Or(r.SameError, DefaultSameError)
	}
	if r.SameError != -1 && (r.SameError < 0 || r.SameError == 1 || r.SameError > 1000) {
		bad("same_error %d is not between 2 and 1000 (-1 for none)", r.SameError)
	}
	only := func(key, strategy string, set bool, also ...string) {
		if set && r.Strategy != strategy && !slices.Contains(also, r.Strategy) {
			bad("%s is for strategy %s: remove it or choose that", key, strategy)
		}
	}
	only("delays", StrategyImmediate, len(r.Delays) > 0, StrategyConditional)
	only("windows", StrategyScheduled, len(r.Windows) > 0)
	only("time_zone", StrategyScheduled, r.TimeZone != "")
	only("window_length", StrategyScheduled, r.WindowLength != 0)
	only("conditions", StrategyConditional, len(r.Conditions) > 0)
	switch r.Strategy {
	case StrategyImmediate, StrategyConditional:
		if len(c.Delays) == 0 {
			c.Delays = DefaultDelays
		}
		if i := slices.IndexFunc(c.Delays, func(d time.Duration) bool { return d < time.Second || d > 30*24*time.Hour }); i >= 0 {
			bad("delays: %s is not between 1s and 720h", c.Delays[i])
		}
		if len(c.Delays) > 100 {
			bad("delays has %d entries, more than 100", len(c.Delays))
		}
		if r.Strategy == StrategyConditional && len(c.Conditions) == 0 {
			c.Conditions = Conditions
		}
		for _, name := range r.Conditions {
			if !slices.Contains(Conditions, name) {
				bad("conditions: unknown condition %q: use some of %v", name, Conditions)
			}
		}
	case StrategyScheduled:
		c.schedule = newSchedule(&r, bad)
	case StrategyManual, StrategyBreakerClose:
	default:
		bad("strategy %q: use one of %v", r.Strategy, Strategies[:5])
	}
	return c
}

// Subject contains the fields that rules match.
type Subject struct {
	ErrorClass, ErrorCode, EventType, AggregateType, Table string
	FailedReplays                                          int
	FirstFailedAt                                          time.Time
}

// Choice is the result of a rule for a dead letter.
type Choice struct {
	// Rule is the name of the rule, Strategy its strategy.
	Rule, Strategy string
	// NextAttempt is the earliest time of the replay; zero if the strategy has no time.
	NextAttempt time.Time
	// MaxReplays and SameError are the fields of Failure with these names; 0 is no
	// limit.
	MaxReplays, SameError int
}

// Choose applies the first rule that matches the dead letter.
func (r *StrategyRules) Choose(s *Subject, now time.Time) Choice {
	for _, c := range r.rules {
		if !c.matches(s, now) {
			continue
		}
		choice := Choice{Rule: c.Name, Strategy: c.Strategy, MaxReplays: c.MaxReplays, SameError: max(c.SameError, 0)}
		switch c.Strategy {
		case StrategyImmediate, StrategyConditional:
			choice.NextAttempt = now.Add(c.Delays[min(s.FailedReplays, len(c.Delays)-1)])
		case StrategyScheduled:
			choice.NextAttempt = c.schedule.next(now)
		}
		choice.NextAttempt = choice.NextAttempt.UTC().Truncate(time.Millisecond)
		return choice
	}
	panic("dlq: the last rule does not match all dead letters") // DefaultStrategyRules ends with one
}

// Strategy returns the strategy of the rule called name; empty if there is none.
func (r *StrategyRules) Strategy(name string) string {
	if c := r.byName(name); c != nil {
		return c.StrategyRule.Strategy
	}
	return ""
}

// Conditions returns the conditions of the rule called name; none if it is not
// conditional or does not exist.
func (r *StrategyRules) Conditions(name string) []string {
	if c := r.byName(name); c != nil {
		return c.Conditions
	}
	return nil
}

// Window reports whether dead letters of the rule called name may be replayed at now,
// and otherwise when the next window begins. Rules without windows always allow it.
func (r *StrategyRules) Window(name string, now time.Time) (open bool, next time.Time) {
	c := r.byName(name)
	if c == nil || c.schedule == nil || c.schedule.open(now) {
		return true, time.Time{}
	}
	return false, c.schedule.next(now)
}

func (r *StrategyRules) byName(name string) *compiled {
	for _, c := range r.rules {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (c *compiled) matches(s *Subject, now time.Time) bool {
	return anyMatch(c.ErrorClasses, s.ErrorClass) && anyMatch(c.ErrorCodes, s.ErrorCode) && anyMatch(c.EventTypes, s.EventType) &&
		anyMatch(c.AggregateTypes, s.AggregateType) && anyMatch(c.Tables, s.Table) &&
		s.FailedReplays >= c.FailedReplays && (c.OlderThan == 0 || now.Sub(s.FirstFailedAt) >= c.OlderThan)
}

// anyMatch reports whether there are no patterns, or one matches.
func anyMatch(patterns []string, value string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return glob.Match(p, value) })
}
