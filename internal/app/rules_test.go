package app

import (
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

func TestRules_FromTheFile(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, `
relay:
  rules:
    - {name: payments, event_types: [Payment*], strategy: immediate, delays: [10s, 1m]}
    - name: nightly
      error_classes: [attempts_used]
      failed_replays: 2
      older_than: 2h
      strategy: scheduled
      windows: ["30 1 * * 1-5"]
      time_zone: Europe/Berlin
      window_length: 90m
      same_error: 4
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	got := confs[0]
	if len(got.Rules) != 2 {
		t.Fatalf("%d rules, want 2", len(got.Rules))
	}
	if r := got.Rules[0]; r.Strategy != dlq.StrategyImmediate || len(r.Delays) != 2 || r.Delays[0] != 10*time.Second {
		t.Errorf("the first rule is %+v", r)
	}
	if r := got.Rules[1]; r.OlderThan != 2*time.Hour || r.WindowLength != 90*time.Minute || r.FailedReplays != 2 || r.SameError != 4 || r.Windows[0] != "30 1 * * 1-5" {
		t.Errorf("the second rule is %+v", r)
	}
}

// An error in a rule is reported at the start, with its name.
func TestRules_BadOnesAreNamed(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`{name: a, strategy: soon}`:                                     `relay.rules: rule a: strategy "soon": use one of`,
		`{name: a, strategy: manual, event_type: X}`:                    "event_type",
		`{name: a, strategy: immediate, delays: [soon]}`:                "delays[0]",
		`{name: a, strategy: scheduled, windows: ["* * *"]}`:            "not a cron expression",
		`{name: a, strategy: conditional, conditions: [cpu, the_moon]}`: `unknown condition "the_moon"`,
	} {
		_, err := parseConfig(t, "relay:\n  rules:\n    - "+rule+"\n", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", rule, err, want)
		}
	}
}
