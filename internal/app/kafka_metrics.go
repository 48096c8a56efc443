package app

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// kafkaNamespace begins the names of the metrics of the Kafka clients.
const kafkaNamespace = "outbox_kafka"

// kafkaMetrics are the metrics of all Kafka clients of a process: a counter is the sum over
// the open and the closed ones. Their labels are the ids of brokers only.
//
// kprom.Metrics is made for one client: it registers its metrics when the client is created,
// and removes them when it is closed. Here they are registered once.
type kafkaMetrics struct{ *kprom.Metrics }

// newKafkaMetrics registers the metrics with reg. It panics if reg has them already.
func newKafkaMetrics(reg prometheus.Registerer) kafkaMetrics {
	m := kprom.NewMetrics(kafkaNamespace, kprom.Registerer(severalClients{reg}),
		kprom.Histograms(kprom.RequestDurationE2E, kprom.RequestThrottled),
		kprom.FetchAndProduceDetail(kprom.Batches, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes, kprom.ConsistentNaming))
	m.OnNewClient(nil) // only the gauges that severalClients omits read a client
	return kafkaMetrics{m}
}

// OnNewClient implements kgo.HookNewClient. It does nothing.
func (kafkaMetrics) OnNewClient(*kgo.Client) {}

// OnClientClosed implements kgo.HookClientClosed. It does nothing.
func (kafkaMetrics) OnClientClosed(*kgo.Client) {}

// severalClients registers all metrics but the gauges of buffered records, which describe a
// single client.
type severalClients struct{ prometheus.Registerer }

// MustRegister implements prometheus.Registerer.
func (r severalClients) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if _, gauge := c.(prometheus.GaugeFunc); !gauge {
			r.Registerer.MustRegister(c)
		}
	}
}
