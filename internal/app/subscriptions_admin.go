package app

import (
	"context"
	"log/slog"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/forward"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// subscriptionRoutes returns the operations of operators on subscriptions. This process runs
// none: it reads the database and Kafka, and asks the processes that run them. The caller
// calls stop.
func subscriptionRoutes(ctx context.Context, c *Config, session *gocql.Session, deadLetters *dlq.Store, log *slog.Logger) (_ func(huma.API), stop func() error, err error) {
	consistency, serial := c.Scylla.Consistencies()
	resources, err := store.Open(session, c.Scylla.Keyspace, store.WithConsistency(consistency), store.WithSerialConsistency(serial))
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	key, err := receiptKey(ctx, resources, log)
	if err != nil {
		return nil, nil, err
	}
	peers, err := c.peerClient()
	if err != nil {
		return nil, nil, err
	}
	kafka, err := c.Kafka.Client()
	if err != nil {
		return nil, nil, err
	}
	instance := self.Unique()
	idle, err := engine.NewIdle(engine.Config{Store: resources, DeadLetters: deadLetters, Instance: instance, Logger: log}, kadm.NewClient(kafka))
	if err != nil {
		kafka.Close()
		return nil, nil, err
	}
	f, err := forward.New(forward.Config{Local: idle, Instance: instance, Key: key, Reports: resources, Receipts: idle, HTTP: peers, Logger: log})
	if err != nil {
		kafka.Close()
		return nil, nil, err
	}
	return api.Operators(f, log), func() error {
		defer kafka.Close()
		return f.Close()
	}, nil
}
