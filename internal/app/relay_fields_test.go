package app

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// A wrong value of the relay is refused before anybody waits for a database, by the name that the
// user wrote; it is reported once for two tables that share it.
func TestConfig_RelayValuesAreCheckedFirst(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][]string{
		"relay:\n  attempt_timeout: 1h\n  ordering: Strict\n":          {"relay.attempt_timeout: 1h is above the limit of 10m", `relay.ordering: "Strict": write strict or relaxed`},
		"relay:\n  orderings: [OrderViewed=loose]\n":                   {`relay.orderings: OrderViewed: "loose" must be strict or relaxed`},
		"relay:\n  topic: 'a b'\n":                                     {`relay.topic: "a b" is not a valid topic name`},
		"kafka:\n  seeds: []\n":                                        {"kafka.seeds is empty"},
		"relay:\n  tables: [{table: a, preset: dibezium}]\n":           {"table outbox.a: relay.tables:", "dibezium"},
		"relay:\n  tables: [{table: a}, {table: b}]\n  backfill: no\n": {`relay.backfill: "no": write auto or off`},
	} {
		c, err := parseConfig(t, file, nil)
		if err == nil {
			err = checkSettings(c)
		}
		for _, w := range want {
			if err == nil || strings.Count(err.Error(), w) != 1 {
				t.Errorf("%s\nerror = %v, want %q in it once", file, err, w)
			}
		}
	}
	if c, err := parseConfig(t, "", nil); err != nil || checkSettings(c) != nil {
		t.Errorf("defaults: error = %v, %v, want none", err, checkSettings(c))
	}
}

// checkSettings checks the relays of c as a start does.
func checkSettings(c *Config) error {
	confs, err := c.RelayConfigs()
	if err != nil {
		return err
	}
	return checkRelays(confs)
}

// Each field that Validate may name is a setting, or nobody can set it from outside.
func TestSettings_EveryFieldOfTheRelay(t *testing.T) {
	t.Parallel()
	inside := strings.Fields(`Session Kafka Logger Registerer Tracer Hints LoadMeter Shard Fence Process QueryWindow GenerationDelay FirstAge GapWait
		BackfillFrom AwaitTable MaxStreamBacklog MaxAggregates RetryMin RetryMax HoldRetry RestartDelay CheckpointInterval IdleCheckpoint StallAfter
		TailMinInterval TailHintInterval TailOverlap MaxInFlightRecords MaxInFlightBytes TailReorder TailMaxQueriesPerSecond ReadBackMargin ReadBackQuiet BusyDelay IdleDelay StrategyPoll ClaimFor ReplayPoll ReplayCanary ReplayRate ReplayConcurrency RetryJitter
		BreakerFailures DrainTimeout BreakerRate BreakerWindow BreakerMinCalls BreakerProbes ConditionBroker ConditionDatabase ConditionCPU ConditionMemory`)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Config]()) {
		if _, ok := Settings.Key(SectionRelay, f.Name); f.IsExported() && !f.Anonymous && ok == slices.Contains(inside, f.Name) {
			t.Errorf("field %s: setting %t, want it in one of the two lists", f.Name, ok)
		}
	}
}

// Switched off, the tail reader does not read, and an open breaker makes no dead letter.
func TestRelayConfig_Off(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][3]string{
		"": {"", "", ""},
		"relay: {tail_max_interval: off, spill_limit: off, dead_letters: false}": {relay.TailOff, relay.WhenOpenHold, relay.DeadLettersOff},
	} {
		c, err := parseConfig(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := c.RelayConfig()
		if err != nil || [3]string{conf.Tail, conf.WhenOpen, conf.DeadLetters} != want {
			t.Errorf("%s: tail %q, when open %q, dead letters %q, %v, want %q", file, conf.Tail, conf.WhenOpen, conf.DeadLetters, err, want)
		}
		if err := checkSettings(c); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A setting is a decision of every operator. One that is added replaces another one, which
// is derived or constant then.
func TestSettings_AtMost100(t *testing.T) {
	t.Parallel()
	if n := len(Settings); n > 100 {
		t.Errorf("%d settings, want at most 100", n)
	}
}

// One setting makes the tail reader read less often, with hints and without; by default it
// reads as fast as before.
func TestRelayConfig_TailIntervals(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	d := relay.Defaults()
	for file, want := range map[string][3]time.Duration{
		"":                                    {d.TailMinInterval, d.TailMaxInterval, d.TailHintInterval},
		"relay: {tail_max_interval: 1ms}":     {ms, ms, d.TailHintInterval},
		"relay: {tail_max_interval: 101ms}":   {3030 * time.Microsecond, 101 * ms, d.TailHintInterval},
		"relay: {tail_max_interval: 1s}":      {30 * ms, time.Second, 27 * ms},
		"relay: {tail_max_interval: 10s}":     {300 * ms, 10 * time.Second, 297 * ms},
		"relay: {tail_max_interval: \"off\"}": {d.TailMinInterval, d.TailMaxInterval, d.TailHintInterval},
	} {
		c, err := parseConfig(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := c.RelayConfig()
		if err != nil || [3]time.Duration{conf.TailMinInterval, conf.TailMaxInterval, conf.TailHintInterval} != want {
			t.Errorf("with %q: %s, %s, %s, error %v, want %v", file, conf.TailMinInterval, conf.TailMaxInterval, conf.TailHintInterval, err, want)
		}
	}
}
