package publish

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// DataLoss describes a partition that no longer has records that it acknowledged, because
// a replica without them became its leader.
type DataLoss struct {
	Topic     string
	Partition int32
	At        time.Time
}

// dataLossReported is the time for which a loss is a readiness problem. The relay cannot
// repair a loss; a verification finds the missing events.
const dataLossReported = time.Hour

// losses contains the last loss, and counts losses and recreated topics. It is safe for concurrent use.
type losses struct {
	log       *slog.Logger
	count     prometheus.Counter
	recreated *prometheus.CounterVec // by topic
	last      atomic.Pointer[DataLoss]
}

// DataLost records a loss.
func (l *losses) DataLost(topic string, partition int32) {
	l.count.Inc()
	l.last.Store(&DataLoss{Topic: topic, Partition: partition, At: time.Now()})
	l.log.Error("the broker has lost records that it acknowledged; find the missing events with outbox verify", "topic", topic, "partition", partition)
}

// Recreated counts a topic that was deleted and created again.
func (l *losses) Recreated(topic string) { l.recreated.WithLabelValues(topic).Inc() }

// observer receives the reports of the producer's connections.
type observer struct {
	*calls.Calls
	*losses
}

var _ producer.Observer = observer{}
