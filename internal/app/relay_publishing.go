package app

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// relayPublishing are the settings of retries, breaker and dead letters.
type relayPublishing struct {
	RetryDelays       []string      `koanf:"retry_delays"`
	RetryJitter       float64       `koanf:"retry_jitter"`
	AttemptTimeout    time.Duration `koanf:"attempt_timeout"`
	BreakerFailures   int           `koanf:"breaker_failures"`
	BreakerRate       float64       `koanf:"breaker_rate"`
	BreakerWindow     time.Duration `koanf:"breaker_window"`
	BreakerMinCalls   int           `koanf:"breaker_min_calls"`
	BreakerOpen       time.Duration `koanf:"breaker_open"`
	BreakerProbes     int           `koanf:"breaker_probes"`
	WhenOpen          string        `koanf:"when_open"`
	SpillLimit        int           `koanf:"spill_limit"`
	DeadLetters       string        `koanf:"dead_letters"`
	Ordering          string        `koanf:"ordering"`
	Orderings         []string      `koanf:"orderings"`
	ReplayPoll        time.Duration `koanf:"replay_poll"`
	ReplayConcurrency int           `koanf:"replay_concurrency"`
	ReplayRate        float64       `koanf:"replay_rate"`
	ReplayCanary      int           `koanf:"replay_canary"`
	ClaimFor          time.Duration `koanf:"claim_for"`
	StrategyPoll      time.Duration `koanf:"strategy_poll"`
	ConditionBroker   time.Duration `koanf:"condition_broker"`
	ConditionDatabase time.Duration `koanf:"condition_database"`
	ConditionCPU      float64       `koanf:"condition_cpu"`
	ConditionMemory   float64       `koanf:"condition_memory"`
	// Rules choose the strategies of dead letters; see rulesKey.
	Rules []dlq.StrategyRule `koanf:"-"`
}

// RulesKey is the key of the list of rules. Like the list of tables it has no
// flag and no environment variable.
const RulesKey = "relay.rules"

// rulesFrom reads the list of rules as the file has it. What is wrong with one is
// an error that names it.
func rulesFrom(list any) ([]dlq.StrategyRule, error) {
	if list == nil {
		return nil, nil
	}
	var out []dlq.StrategyRule
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &out, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true, DecodeHook: durationHook(),
	})
	if err == nil {
		err = d.Decode(list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: each rule has name, error_classes, error_codes, event_types, aggregate_types, tables, failed_replays, older_than, "+
			"strategy, delays, windows, time_zone, window_length, conditions, max_replays, same_error", RulesKey, err)
	}
	if _, err := dlq.NewStrategyRules(out); err != nil {
		return nil, fmt.Errorf("%s: %w", RulesKey, err)
	}
	return out, nil
}

// publishingSettings are in the table of settings.
var publishingSettings = []setting{
	{SectionRelay, "retry_delays", durations(relay.DefaultRetryDelays()), "wait before each attempt to publish an event; their number is that of the attempts. 0s,1s,2s,4s is the other usual profile", false},
	{SectionRelay, "retry_jitter", relay.DefaultRetryJitter, "share by which such a wait is longer or shorter at random; -1 for none", false},
	{SectionRelay, "attempt_timeout", relay.DefaultAttemptTimeout, "how long the broker may take to acknowledge before that is a failure", false},
	{SectionRelay, "breaker_failures", relay.DefaultBreakerFailures, "failures in a row that open the breaker", false},
	{SectionRelay, "breaker_rate", relay.DefaultBreakerRate, "share of failures in relay.breaker_window that opens it too", false},
	{SectionRelay, "breaker_window", relay.DefaultBreakerWindow, "time over which that share is taken", false},
	{SectionRelay, "breaker_min_calls", relay.DefaultBreakerMinCalls, "calls there must be in it before the share counts; what is sent within 50 ms is one call", false},
	{SectionRelay, "breaker_open", relay.DefaultBreakerOpen, "how long the breaker stays open before it lets probes through", false},
	{SectionRelay, "breaker_probes", relay.DefaultBreakerProbes, "probes that must succeed to close it", false},
	{SectionRelay, "when_open", relay.DefaultWhenOpen, "what happens to events while it is open: spill writes dead letters, which are published when it closes; hold keeps events in the CDC log", false},
	{SectionRelay, "spill_limit", relay.DefaultSpillLimit, "dead letters that an open breaker makes before the relay holds; -1 for none", false},
	{SectionRelay, "dead_letters", relay.DeadLettersOn, "on: an event that cannot be published is written to dead_letter_queue. off: its aggregate is held", false},
	{SectionRelay, "ordering", relay.DefaultOrdering, "strict: later events of an aggregate wait behind its dead letter. relaxed: they pass", false},
	{SectionRelay, "orderings", []string(nil), "the same by event type, type=strict or type=relaxed", false},
	{SectionRelay, "replay_poll", relay.DefaultReplayPoll, "how often the relay reads operators' changes of dead letters", false},
	{SectionRelay, "replay_concurrency", relay.DefaultReplayConcurrency, "dead letters that are replayed at the same time", false},
	{SectionRelay, "replay_rate", float64(relay.DefaultReplayRate), "dead letters that are replayed per second, at most; -1 does not bound it", false},
	{SectionRelay, "replay_canary", relay.DefaultReplayCanary, "more dead letters with equal errors than this are replayed behind canaries: 1, 2, 5, 20, 100, and when one fails with the same error again, the others wait; -1 sends none", false},
	{SectionRelay, "schedule", "on", "on: write scheduled messages to the outbox when they are due; one of several relays does. off: do not", false},
	{SectionRelay, "schedule_rate", schedule.DefaultRate, "scheduled messages written to the outbox per second, at most", false},
	{SectionRelay, "claim_for", relay.DefaultClaimFor, "how long a replay may take, unless it is extended, before another worker may take the dead letter", false},
	{SectionRelay, "strategy_poll", relay.DefaultStrategyPoll, "how often windows and conditions of waiting dead letters are evaluated", false},
	{SectionRelay, "condition_broker", relay.DefaultConditionBroker, "condition broker_healthy: how long no call to the broker may have failed", false},
	{SectionRelay, "condition_database", relay.DefaultConditionDatabase, "condition database_latency: how long a read may take", false},
	{SectionRelay, "condition_cpu", float64(relay.DefaultConditionCPU), "condition cpu: maximum CPU use, in percent of the container's limit, or of the machine without one", false},
	{SectionRelay, "condition_memory", float64(relay.DefaultConditionMemory), "condition memory: maximum memory use, in percent of the container's limit, or of the machine without one", false},
}

func durations(ds []time.Duration) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.String()
	}
	return out
}

// apply sets what the settings say.
func (p *relayPublishing) apply(c *relay.Config) error {
	for _, text := range p.RetryDelays {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return cli.Usage(fmt.Errorf("relay.retry_delays: %q is no duration: write waits such as 0s,100ms,1s", text))
		}
		c.RetryDelays = append(c.RetryDelays, d)
	}
	c.Orderings = make(map[string]string, len(p.Orderings))
	for _, pair := range p.Orderings {
		event, ordering, ok := strings.Cut(pair, "=")
		if !ok {
			return cli.Usage(fmt.Errorf("relay.orderings: %q: write type=ordering, such as OrderViewed=relaxed", pair))
		}
		c.Orderings[event] = ordering
	}
	c.RetryJitter, c.AttemptTimeout = p.RetryJitter, p.AttemptTimeout
	c.BreakerFailures, c.BreakerRate, c.BreakerWindow = p.BreakerFailures, p.BreakerRate, p.BreakerWindow
	c.BreakerMinCalls, c.BreakerOpen, c.BreakerProbes = p.BreakerMinCalls, p.BreakerOpen, p.BreakerProbes
	c.WhenOpen, c.SpillLimit, c.DeadLetters = p.WhenOpen, p.SpillLimit, p.DeadLetters
	c.ReplayRate, c.ReplayCanary, c.StrategyPoll, c.Rules = p.ReplayRate, p.ReplayCanary, p.StrategyPoll, p.Rules
	c.ConditionBroker, c.ConditionDatabase, c.ConditionCPU, c.ConditionMemory = p.ConditionBroker, p.ConditionDatabase, p.ConditionCPU, p.ConditionMemory
	c.Ordering, c.ReplayPoll, c.ReplayConcurrency, c.ClaimFor = p.Ordering, p.ReplayPoll, p.ReplayConcurrency, p.ClaimFor
	return nil
}
