package relay

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// outbox_relay_blocked_aggregates counts aggregates whose events wait, not every aggregate
// with a dead letter: the alert on it is critical.
func TestMetrics_BlockedAggregates(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		bad := relaytest.Event(1, 1, "OrderCreated")
		w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
		r, stop := w.run()
		check := func(open, blocked float64) {
			t.Helper()
			reg := prometheus.NewRegistry()
			registerState(reg, r)
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]float64)
			for _, f := range families {
				got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
			}
			if got["outbox_relay_dead_letters_open"] != open || got["outbox_relay_blocked_aggregates"] != blocked {
				t.Errorf("%g open dead letters and %g blocked aggregates, want %g and %g",
					got["outbox_relay_dead_letters_open"], got["outbox_relay_blocked_aggregates"], open, blocked)
			}
		}
		w.write(bad)
		time.Sleep(20 * time.Second)
		check(1, 0)
		w.write(relaytest.Event(1, 2, "OrderUpdated"))
		time.Sleep(20 * time.Second)
		check(2, 1)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
