package backfill

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Rows that do not expire have no end, so that no alert compares a made-up time with a limit.
func TestRegister_RowsThatDoNotExpire(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := new(Backfill) // the TTL of its log is 0
	Register(reg, func() *Backfill { return b })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "outbox_relay_cdc_log_left_seconds" {
			continue
		}
		if left := f.GetMetric()[0].GetGauge().GetValue(); !math.IsInf(left, 1) {
			t.Errorf("%s = %v, want +Inf", f.GetName(), left)
		}
		return
	}
	t.Error("there is no outbox_relay_cdc_log_left_seconds")
}
