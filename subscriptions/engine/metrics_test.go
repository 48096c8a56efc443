package engine

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// readMetrics returns the metrics of subscription s: counters and levels by name, histograms
// by name with _count and _sum.
func (p *process) readMetrics(name string) map[string]float64 {
	p.w.t.Helper()
	families, err := p.reg.Gather()
	if err != nil {
		p.w.t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "subscription" || m.GetLabel()[0].GetValue() != name {
				continue
			}
			if h := m.GetHistogram(); h != nil {
				out[f.GetName()+"_count"], out[f.GetName()+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			out[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// The metrics follow five messages: one is acknowledged after three seconds, twice, one
// fails, one expires, one is a dead letter, and one waits for the key of the failed one.
func TestEngine_Metrics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Backoff: time.Hour, MaxBackoff: time.Hour, VisibilityTimeout: 10 * time.Second})
		p := w.start()
		w.produce("a", "k0", "acknowledged")
		w.produce("a", "k1", "failed")
		w.produce("a", "k1", "behind")
		w.produce("a", "k2", "expired")
		w.produce("a", "k3", "dead", kgo.RecordHeader{Key: subscriptions.HeaderMaxReceive, Value: []byte("1")})
		w.sleep(10 * time.Second)
		check := func(when string, want map[string]float64) {
			t.Helper()
			got := p.readMetrics("s")
			for name, v := range want {
				if math.Abs(got["outbox_subscription_"+name]-v) > 0.1 {
					t.Errorf("%s: %s is %v, want %v", when, name, got["outbox_subscription_"+name], v)
				}
			}
		}
		check("before", map[string]float64{"lag": 5, "waiting": 5, "in_flight": 0, "oldest_unacknowledged_seconds": 10, "received_total": 0, "paused": 0})
		byName := make(map[string]subscriptions.Message)
		for _, m := range p.all() {
			byName[nameOfMessage(&m)] = m
		}
		check("leased", map[string]float64{"lag": 5, "waiting": 1, "in_flight": 4, "received_total": 4})
		w.sleep(3 * time.Second)
		p.ok(subscriptions.ActionNack, byName["failed"], byName["dead"])
		for range 2 {
			p.ok(subscriptions.ActionAck, byName["acknowledged"])
		}
		w.sleep(10 * time.Second)
		if err := p.Pause(context.Background(), "s", "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		check("after", map[string]float64{
			"lag": 3, "waiting": 1, "in_flight": 0, "deferred": 2, "stored": 2, "oldest_unacknowledged_seconds": 25, "paused": 1,
			"nacked_total": 2, "expired_total": 1, "dead_lettered_total": 1,
			"receive_to_acknowledge_duration_seconds_count": 1, "receive_to_acknowledge_duration_seconds_sum": 3, "settle_duration_seconds_count": 3,
		})
		if err := p.Delete(context.Background(), "s", 0, "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		if left := p.readMetrics("s"); len(left) > 0 {
			t.Errorf("metrics of a deleted subscription: %v", left)
		}
	})
}
