package latency

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A histogram has classic buckets, a native histogram, and the exemplars of observations
// with a trace.
func TestObserve(t *testing.T) {
	t.Parallel()
	h := prometheus.NewHistogram(Opts("x_seconds", "X.", []float64{.1, 1}))
	Observe(h, 500*time.Millisecond, prometheus.Labels{"trace_id": "7"})
	Observe(h, 5*time.Second, nil)
	var got dto.Metric
	if err := h.Write(&got); err != nil {
		t.Fatal(err)
	}
	b := got.GetHistogram().GetBucket()
	if len(b) < 2 || b[0].GetCumulativeCount() != 0 || b[1].GetCumulativeCount() != 1 || got.GetHistogram().GetSampleCount() != 2 {
		t.Errorf("the classic buckets are %v", b)
	}
	if e := b[1].GetExemplar(); e.GetValue() != .5 || len(e.GetLabel()) != 1 || e.GetLabel()[0].GetValue() != "7" {
		t.Errorf("the exemplar is %v", e)
	}
	if n := got.GetHistogram(); n.Schema == nil || len(n.GetPositiveDelta()) != 2 {
		t.Errorf("there is no native histogram with both observations: %v", n)
	}
}

// The requests of all APIs, also of one process, are one family with the same buckets.
func TestRequests_OneFamilyForAllAPIs(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	apis := []string{"admin", "orders", "subscriptions"}
	for _, api := range apis {
		requests := Requests(api)
		reg.MustRegister(requests)
		requests.WithLabelValues("get", "200").Observe(20)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != len(apis) {
		t.Fatalf("Gather() = %v, %v, want one family with %d series", families, err, len(apis))
	}
	for i, m := range families[0].GetMetric() {
		if l := m.GetLabel()[0]; l.GetName() != "api" || l.GetValue() != apis[i] {
			t.Errorf("series %d has the label %s=%s first, want api=%s", i, l.GetName(), l.GetValue(), apis[i])
		}
	}
}
