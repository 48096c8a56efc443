package app

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// The broker waits until shards are drained, and at least half of the session.
func TestRelayConfig_RebalanceTimeout(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ drain, session, want time.Duration }{
		{20 * time.Second, 10 * time.Second, share.DefaultRebalanceTimeout},
		{50 * time.Second, 10 * time.Second, 68 * time.Second},
		{20 * time.Second, 5 * time.Minute, 150 * time.Second},
	} {
		c := RelayConfig{DrainTimeout: x.drain, SessionTimeout: x.session}
		if got := c.rebalanceTimeout(); got != x.want {
			t.Errorf("drain %s, session %s: rebalanceTimeout() = %s, want %s", x.drain, x.session, got, x.want)
		}
	}
}

// A short confidence window is read in time, and the default one as rarely as before.
func TestRelayConfig_SweepFollowsTheWindow(t *testing.T) {
	t.Parallel()
	for window, want := range map[string][2]time.Duration{
		"2m": {time.Second, 5 * time.Second}, "1h": {time.Second, 5 * time.Second},
		"30s": {250 * time.Millisecond, 1250 * time.Millisecond}, "3s": {100 * time.Millisecond, 125 * time.Millisecond},
	} {
		c, err := configOf(t, "", nil, "--relay-confidence-window", window)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := c.RelayConfig()
		if err != nil || [2]time.Duration{conf.BusyDelay, conf.IdleDelay} != want {
			t.Errorf("window %s: delays %s and %s, %v, want %v", window, conf.BusyDelay, conf.IdleDelay, err, want)
		}
	}
}
