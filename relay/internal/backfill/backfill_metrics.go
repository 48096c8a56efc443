package backfill

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers gauges of the backfill that current returns, nil before the
// first.
func Register(reg prometheus.Registerer, current func() *Backfill) {
	gauge := func(name, help string, f func(*Backfill) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if b := current(); b != nil {
				return f(b)
			}
			return 0
		}))
	}
	gauge("outbox_relay_backfill_running", "1 while the outbox table is scanned for events that the CDC log may not have.", func(b *Backfill) float64 {
		if b.Status().Running {
			return 1
		}
		return 0
	})
	gauge("outbox_relay_backfill_ranges", "Token ranges of the scan, zero without one.", func(b *Backfill) float64 { return float64(b.Status().Ranges) })
	gauge("outbox_relay_backfill_ranges_done", "Ranges of the scan whose events are all acknowledged.", func(b *Backfill) float64 { return float64(b.Status().Done) })
	gauge("outbox_relay_backfill_rows", "Rows that the scan has read, those before a restart included.", func(b *Backfill) float64 { return float64(b.Status().Rows) })
	gauge("outbox_relay_backfill_published", "Events that the scan has handed on, those before a restart included.", func(b *Backfill) float64 { return float64(b.Status().Published) })
	gauge("outbox_relay_backfill_unreadable", "Rows that the scan found to be no events; they become dead letters.", func(b *Backfill) float64 { return float64(b.Status().Unreadable) })
	gauge("outbox_relay_cdc_log_ttl_seconds", "How long the CDC log keeps its rows, 0 for ever.", func(b *Backfill) float64 {
		return b.LogTTL().Seconds()
	})
	gauge("outbox_relay_cdc_log_left_seconds", "Time until the CDC log has lost what the oldest checkpoint stands before; the relay then scans the outbox table, if it has the columns of outbox_messages. A year if the log keeps its rows for ever.", func(b *Backfill) float64 {
		if b.LogTTL() == 0 {
			return (365 * 24 * time.Hour).Seconds()
		}
		return b.Left(time.Now()).Seconds()
	})
}

// LogTTL returns how long the CDC log keeps its rows, zero for ever.
func (b *Backfill) LogTTL() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.facts.CDCTTL
}
