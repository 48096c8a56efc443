package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
)

// newHub returns the hub of the event streams.
func newHub(c *Config, reg prometheus.Registerer, log *slog.Logger) (*stream.Hub, error) {
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	schemas, err := c.Kafka.SchemaRegistry()
	if err != nil {
		return nil, err
	}
	h, err := stream.New(stream.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Topics: c.Watch.Topics, Schemas: schemas,
		Logger: log, Registerer: reg, Tracer: c.Tracer,
	})
	if err != nil {
		return nil, cli.Usage(err)
	}
	return h, nil
}
