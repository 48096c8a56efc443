package relay

import (
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cgroup"
)

// Defaults of the fields of Config for publishing, failures and dead letters.
const (
	DefaultRetryJitter       = 0.2
	DefaultAttemptTimeout    = 2 * time.Second
	DefaultBreakerFailures   = 5
	DefaultBreakerRate       = 0.5
	DefaultBreakerWindow     = time.Minute
	DefaultBreakerMinCalls   = 20
	DefaultBreakerOpen       = 30 * time.Second
	DefaultBreakerProbes     = 3
	DefaultWhenOpen          = WhenOpenSpill
	DefaultSpillLimit        = 10_000
	DefaultOrdering          = OrderingStrict
	DefaultReplayPoll        = time.Second
	DefaultReplayConcurrency = 128
	DefaultReplayRate        = 2000
	DefaultReplayCanary      = 10
	DefaultStrategyPoll      = 30 * time.Second
	DefaultClaimFor          = 30 * time.Second
	DefaultConditionBroker   = 10 * time.Second
	DefaultConditionDatabase = 100 * time.Millisecond
	DefaultConditionCPU      = 80
	DefaultConditionMemory   = 85
)

// DefaultRetryDelays returns the delays before the attempts to publish an event: five
// attempts, the first without delay.
func DefaultRetryDelays() []time.Duration {
	return []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond}
}

// Values of Config.DeadLetters.
const (
	DeadLettersOn  = "on"
	DeadLettersOff = "off"
)

// Values of Config.WhenOpen.
const (
	// WhenOpenSpill writes dead letters for waiting events while the breaker is open, up
	// to Config.SpillLimit; then the relay holds. They are replayed when the breaker
	// closes.
	WhenOpenSpill = "spill"
	// WhenOpenHold keeps waiting events in memory, and stops reading when memory is
	// full.
	WhenOpenHold = "hold"
)

// Values of Config.Ordering.
const (
	// OrderingStrict blocks the later events of an aggregate with a dead letter.
	OrderingStrict = "strict"
	// OrderingRelaxed does not block later events; they may be published before the dead
	// letters of their aggregate.
	OrderingRelaxed = "relaxed"
)

func (c *Config) publishingDefaults() {
	if len(c.RetryDelays) == 0 {
		c.RetryDelays = DefaultRetryDelays()
	}
	def(&c.RetryJitter, DefaultRetryJitter)
	def(&c.AttemptTimeout, DefaultAttemptTimeout)
	def(&c.BreakerFailures, DefaultBreakerFailures)
	def(&c.BreakerRate, DefaultBreakerRate)
	def(&c.BreakerWindow, DefaultBreakerWindow)
	def(&c.BreakerMinCalls, DefaultBreakerMinCalls)
	def(&c.BreakerOpen, DefaultBreakerOpen)
	def(&c.BreakerProbes, DefaultBreakerProbes)
	def(&c.DeadLetters, DeadLettersOn)
	def(&c.WhenOpen, DefaultWhenOpen)
	def(&c.SpillLimit, DefaultSpillLimit)
	def(&c.Ordering, DefaultOrdering)
	def(&c.ReplayPoll, DefaultReplayPoll)
	def(&c.ReplayConcurrency, DefaultReplayConcurrency)
	def(&c.ClaimFor, DefaultClaimFor)
	def(&c.ReplayRate, DefaultReplayRate)
	def(&c.ReplayCanary, DefaultReplayCanary)
	def(&c.StrategyPoll, DefaultStrategyPoll)
	def(&c.ConditionBroker, DefaultConditionBroker)
	def(&c.ConditionDatabase, DefaultConditionDatabase)
	def(&c.ConditionCPU, DefaultConditionCPU)
	def(&c.ConditionMemory, DefaultConditionMemory)
	if c.LoadMeter == nil {
		c.LoadMeter = cgroup.New("/")
	}
	c.rules, c.rulesErr = dlq.NewStrategyRules(c.Rules)
}

func (c *Config) validatePublishing(bad report) {
	if len(c.RetryDelays) > 100 {
		bad("RetryDelays", "%d entries, more than 100", len(c.RetryDelays))
	}
	if i := slices.IndexFunc(c.RetryDelays, func(d time.Duration) bool { return d < 0 || d > time.Hour }); i >= 0 {
		bad("RetryDelays", "%s is not between 0 and 1h", c.RetryDelays[i])
	}
	if c.RetryJitter < -1 || c.RetryJitter > 1 {
		bad("RetryJitter", "%g is not between 0 and 1", c.RetryJitter)
	}
	between := func(name string, d, lo, hi time.Duration) {
		if d < lo || d > hi {
			bad(name, "%s is not between %s and %s", d, lo, hi)
		}
	}
	between("AttemptTimeout", c.AttemptTimeout, 10*time.Millisecond, 10*time.Minute)
	between("BreakerWindow", c.BreakerWindow, time.Second, time.Hour)
	between("BreakerOpen", c.BreakerOpen, 100*time.Millisecond, time.Hour)
	between("ReplayPoll", c.ReplayPoll, 10*time.Millisecond, time.Minute)
	between("ClaimFor", c.ClaimFor, time.Second, time.Hour)
	number := func(name string, n, lo, hi int) {
		if n < lo || n > hi {
			bad(name, "%d is not between %d and %d", n, lo, hi)
		}
	}
	number("BreakerFailures", c.BreakerFailures, 1, 10_000)
	number("BreakerMinCalls", c.BreakerMinCalls, 1, 1_000_000)
	number("BreakerProbes", c.BreakerProbes, 1, 100)
	number("ReplayConcurrency", c.ReplayConcurrency, 1, 1000)
	number("ReplayCanary", c.ReplayCanary, -1, 1_000_000)
	if c.ReplayRate != -1 && !(c.ReplayRate >= 0.01 && c.ReplayRate <= 1e6) {
		bad("ReplayRate", "%g is not between 0.01 and 1000000", c.ReplayRate)
	}
	between("StrategyPoll", c.StrategyPoll, 100*time.Millisecond, time.Hour)
	between("ConditionBroker", c.ConditionBroker, time.Millisecond, time.Hour)
	between("ConditionDatabase", c.ConditionDatabase, time.Microsecond, time.Minute)
	for _, x := range []struct {
		name    string
		percent float64
	}{{"ConditionCPU", c.ConditionCPU}, {"ConditionMemory", c.ConditionMemory}} {
		if !(x.percent > 0 && x.percent <= 101) {
			bad(x.name, "%g is not above 0 and at most 101, which always holds", x.percent)
		}
	}
	if c.rulesErr != nil {
		bad("Rules", "%v", c.rulesErr)
	}
	number("SpillLimit", c.SpillLimit, -1, 10_000_000)
	if !(c.BreakerRate > 0 && c.BreakerRate <= 1) {
		bad("BreakerRate", "%g is not above 0 and at most 1", c.BreakerRate)
	}
	if c.DeadLetters != DeadLettersOn && c.DeadLetters != DeadLettersOff {
		bad("DeadLetters", "%q must be %s or %s", c.DeadLetters, DeadLettersOn, DeadLettersOff)
	}
	if c.WhenOpen != WhenOpenSpill && c.WhenOpen != WhenOpenHold {
		bad("WhenOpen", "%q must be %s or %s", c.WhenOpen, WhenOpenSpill, WhenOpenHold)
	}
	if !validOrdering(c.Ordering) {
		bad("Ordering", "%q must be %s or %s", c.Ordering, OrderingStrict, OrderingRelaxed)
	}
	for _, t := range slices.Sorted(maps.Keys(c.Orderings)) {
		if !validOrdering(c.Orderings[t]) {
			bad("Orderings", "%s: %q must be %s or %s", t, c.Orderings[t], OrderingStrict, OrderingRelaxed)
		}
	}
}

func validOrdering(o string) bool { return o == OrderingStrict || o == OrderingRelaxed }
