package app

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// The broker waits until shards are drained, and at least half of the session.
func TestRelayConfig_RebalanceTimeout(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ session, want time.Duration }{
		{10 * time.Second, share.DefaultRebalanceTimeout},
		{5 * time.Minute, 150 * time.Second},
	} {
		c := RelayConfig{SessionTimeout: x.session}
		if got := c.rebalanceTimeout(); got != x.want {
			t.Errorf("session %s: rebalanceTimeout() = %s, want %s", x.session, got, x.want)
		}
	}
	for session := time.Second; session <= 5*time.Minute; session += time.Second {
		c := RelayConfig{SessionTimeout: session}
		if drained := relay.Defaults().DrainTimeout + relayStopMargin + session/5; c.rebalanceTimeout() <= drained {
			t.Errorf("session %s: rebalanceTimeout() = %s, want more than %s, in which shards are drained", session, c.rebalanceTimeout(), drained)
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
		c, err := parseConfig(t, "", nil, "--relay-confidence-window", window)
		if err != nil {
			t.Fatal(err)
		}
		conf, err := c.RelayConfig()
		if err != nil || [2]time.Duration{conf.BusyDelay, conf.IdleDelay} != want {
			t.Errorf("window %s: delays %s and %s, %v, want %v", window, conf.BusyDelay, conf.IdleDelay, err, want)
		}
	}
}
