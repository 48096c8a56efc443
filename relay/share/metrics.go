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
		Name: "outbox_relay_shard_owned", Help: "1 if this instance owns the shard, otherwise 0.",
	}, []string{"shard"})
	out := &metrics{
		rebalances: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_rebalances_total", Help: "Rebalances of the group that this instance took part in.",
		}),
		fences: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_fences_total", Help: "Times this instance stopped its shards because the broker had not acknowledged a heartbeat within the lease.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_losses_total", Help: "Shards lost before this instance had released them.",
		}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_relay_shard_restarts_total", Help: "Restarts of the work on a shard after an error.",
		}),
	}
	for i := range m.cfg.Shards {
		out.owned = append(out.owned, owned.WithLabelValues(strconv.Itoa(i)))
	}
	reg.MustRegister(
		owned, out.rebalances, out.fences, out.lost, out.restarts,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_shards", Help: "Configured number of shards.",
		}, func() float64 { return float64(m.cfg.Shards) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_shard_lease_seconds", Help: "Remaining time of the lease without further answers from the broker, in seconds.",
		}, func() float64 { return m.lease.left().Seconds() }),
	)
	return out
}
