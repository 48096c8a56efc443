package app

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
)

// watchConfig is what may be watched.
type watchConfig struct {
	Topics           []string `koanf:"topics"`
	Buffer           int      `koanf:"buffer"`
	MaxSubscriptions int      `koanf:"max_subscriptions"`
}

// watchSettings are in the table of settings.
var watchSettings = []setting{
	{SectionWatch, "topics", stream.DefaultTopics(), "topics that clients may read as event streams, with * for any characters; those that begin with _ never", false},
	{SectionWatch, "buffer", stream.DefaultBuffer, "events that may wait for one client before it is disconnected", false},
	{SectionWatch, "max_subscriptions", stream.DefaultMaxSubscriptions, "subscriptions of all clients, at most; one client has half of them at most", false},
}

// newHub returns what shows events to watchers.
func (c *Config) newHub(reg prometheus.Registerer, log *slog.Logger) (*stream.Hub, error) {
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	h, err := stream.New(stream.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Topics: c.Watch.Topics, Buffer: c.Watch.Buffer,
		MaxSubscriptions: c.Watch.MaxSubscriptions, Logger: log, Registerer: reg,
	})
	if err != nil {
		return nil, cli.Usage(err)
	}
	return h, nil
}
