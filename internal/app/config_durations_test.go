package app

import (
	"strings"
	"testing"
	"time"
)

func TestConfig_DurationWithoutUnitIsRefused(t *testing.T) {
	t.Parallel()
	for file, field := range map[string]string{
		"retention:\n  resolved: 720\n":                                              "retention.resolved",
		"relay:\n  breaker_open: -5\n  attempt_timeout: 1.5\n":                       "relay.breaker_open",
		"scylla:\n  timeout: 18446744073709551615\n":                                 "scylla.timeout",
		"relay:\n  rules:\n    - {name: a, strategy: immediate, delays: [10, 20]}\n": "delays[0]",
		"relay:\n  rules:\n    - {name: a, strategy: manual, older_than: 48}\n":      "older_than",
	} {
		_, err := parseConfig(t, file, nil)
		if err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), "missing unit") {
			t.Errorf("%s: error = %v, want it to name %s and its missing unit", file, err, field)
		}
	}
	c, err := parseConfig(t, "notifications:\n  blocked_age: 0\nretention:\n  keep: off\nhttp:\n  drain_delay: 0\nrelay:\n  breaker_open: 1m30s\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Notifications; n.BlockedAge != -1 || c.Retention.Keep != -1 || c.HTTP.DrainDelay != 0 || c.Relay.BreakerOpen != 90*time.Second {
		t.Errorf("blocked_age %d, keep %d, drain_delay %s, breaker_open %s", n.BlockedAge, c.Retention.Keep, c.HTTP.DrainDelay, c.Relay.BreakerOpen)
	}
}
