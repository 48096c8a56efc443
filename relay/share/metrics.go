package share

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	owned      []prometheus.Gauge // by shard
	rebalances prometheus.Counter
	fences     prometheus.Counter
	lost       prometheus.Counter
	restarts   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, m *Member) *metrics {
	owned := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "outbox_relay_shard_owned", Help: "Whether this instance works on the shard.",
	}, []string{"shard"})
	out := &metrics{
		rebalances: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_rebalances_total", Help: "Sessions of the group that this instance was in; each may have given it shards or taken some.",
		}),
		fences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_fences_total", Help: "Times that this instance stopped its shards by itself, because the broker had not acknowledged a heartbeat for too long.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_losses_total", Help: "Shards that were taken from this instance before it had given them up.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_restarts_total", Help: "Times that the work on a shard ended with an error, and was started again.",
		}),
	}
	for i := range m.cfg.Shards {
		out.owned = append(out.owned, owned.WithLabelValues(strconv.Itoa(i)))
	}
	reg.MustRegister(
		owned, out.rebalances, out.fences, out.lost, out.restarts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_shards", Help: "Shards that the instances share.",
		}, func() float64 { return float64(m.cfg.Shards) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_shard_lease_seconds", Help: "For how much longer this instance may work on its shards if the broker says nothing.",
		}, func() float64 { return m.lease.left().Seconds() }),
	)
	return out
}
