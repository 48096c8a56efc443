package backfill

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the metrics of the backfill that current returns; current returns nil
// before the first start.
func Register(reg prometheus.Registerer, current func() *Backfill) {
	now := func(f func(*Backfill) float64) func() float64 {
		return func() float64 {
			if b := current(); b != nil {
				return f(b)
			}
			return 0
		}
	}
	gauge := func(name, help string, f func(*Backfill) float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, now(f)))
	}
	count := func(name, help string, f func(*Backfill) float64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, now(f)))
	}
	gauge("outbox_relay_backfill_running", "1 while the outbox table is scanned for events that the CDC log may not have.", func(b *Backfill) float64 {
		if b.Status().Running {
			return 1
		}
		return 0
	})
	gauge("outbox_relay_backfill_ranges", "Token ranges of the scan, 0 without a scan.", func(b *Backfill) float64 { return float64(b.Status().Ranges) })
	gauge("outbox_relay_backfill_ranges_done", "Ranges of the scan whose events are all acknowledged.", func(b *Backfill) float64 { return float64(b.Status().Done) })
	count("outbox_relay_backfill_rows_total", "Rows that the scan has read, those before a restart too; begins at 0 with each scan.", func(b *Backfill) float64 { return float64(b.Status().Rows) })
	count("outbox_relay_backfill_published_total", "Events that the scan passed to the publisher, those before a restart too.", func(b *Backfill) float64 { return float64(b.Status().Published) })
	count("outbox_relay_backfill_unreadable_total", "Rows of the scan that cannot be decoded as events; they become dead letters.", func(b *Backfill) float64 { return float64(b.Status().Unreadable) })
	gauge("outbox_relay_cdc_log_ttl_seconds", "TTL of the rows of the CDC log, 0 for unlimited.", func(b *Backfill) float64 {
		return b.LogTTL().Seconds()
	})
	gauge("outbox_relay_cdc_log_left_seconds", "Time until rows after the oldest checkpoint expire in the CDC log; the relay then scans the outbox table if it has sequence numbers. +Inf if the rows do not expire.", func(b *Backfill) float64 {
		if b.LogTTL() == 0 {
			return math.Inf(1)
		}
		return b.Left(b.cfg.Clock.Latest()).Seconds()
	})
}

// LogTTL returns the ttl of the rows of the CDC log, zero for unlimited.
func (b *Backfill) LogTTL() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.facts.CDCTTL
}
