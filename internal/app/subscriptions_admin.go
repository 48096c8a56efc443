package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/forward"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/trace"
)

// observerTimeout bounds the connection of an observer during a request.
const observerTimeout = 2 * time.Second

// observer is the access of a process that runs no subscriptions: it reads the database and
// Kafka, and asks the processes that run them. It connects when it is first needed.
type observer struct {
	conf    *Config
	session *gocql.Session
	log     *slog.Logger

	mu struct {
		sync.Mutex
		service *forward.Service
		kafka   *kgo.Client
		schemas *registry.Registry
		closed  bool
	}
}

func newObserver(c *Config, session *gocql.Session, log *slog.Logger) *observer {
	return &observer{conf: c, session: session, log: log}
}

// open returns the service, which Close ends.
func (o *observer) open(ctx context.Context) (subscriptions.Service, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return nil, errors.New("the process is stopping")
	}
	if o.mu.service == nil {
		if err := o.connectLocked(ctx); err != nil {
			return nil, err
		}
	}
	return o.mu.service, nil
}

func (o *observer) connectLocked(ctx context.Context) error {
	c := o.conf
	resources, err := c.openSubscriptions(o.session)
	if err != nil {
		return err
	}
	deadLetters, err := dlq.Open(o.session, c.Scylla.Keyspace, append(c.DLQOptions(), dlq.WithLogger(o.log))...)
	if err != nil {
		return cli.Usage(err)
	}
	key, err := c.receiptKey(ctx, resources, o.log)
	if err != nil {
		return err
	}
	peers, err := c.peerClient()
	if err != nil {
		return err
	}
	if o.mu.schemas, err = c.Kafka.SchemaRegistry(); err != nil {
		return err
	}
	kafka, err := c.Kafka.Client()
	if err != nil {
		return err
	}
	instance := self.Unique()
	idle, err := engine.NewIdle(engine.Config{Store: resources, DeadLetters: deadLetters, Instance: instance, Logger: o.log}, kadm.NewClient(kafka))
	if err == nil {
		o.mu.service, err = forward.New(forward.Config{Local: idle, Instance: instance, Key: key, Reports: resources, Receipts: idle, HTTP: peers, Logger: o.log})
	}
	if err != nil {
		kafka.Close()
		return err
	}
	o.mu.kafka = kafka
	return nil
}

// newRedeliverer returns the service of redeliveries. Errors are of usage.
func (c *Config) newRedeliverer(session *gocql.Session, deadLetters *dlq.Store) (*redeliver.Service, error) {
	resources, err := c.openSubscriptions(session)
	if err != nil {
		return nil, err
	}
	schemas, err := c.Kafka.SchemaRegistry()
	if err != nil {
		return nil, err
	}
	return redeliver.New(redeliver.Config{Store: resources, DeadLetters: deadLetters, Kafka: c.Kafka.Client, Schemas: schemas}), nil
}

// openSubscriptions opens the subscriptions in the database. Errors are of usage.
func (c *Config) openSubscriptions(session *gocql.Session) (*store.Store, error) {
	s, err := store.Open(session, c.Scylla.Keyspace, store.WithConsistency(consistency), store.WithSerialConsistency(c.Scylla.serialConsistency()))
	if err != nil {
		return nil, cli.Usage(err)
	}
	return s, nil
}

// Of returns the state of the message of a record in each subscription of its topic.
func (o *observer) Of(ctx context.Context, r *kgo.Record) ([]subscriptions.Progress, error) {
	opening, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	s, err := o.open(opening)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	schemas := o.mu.schemas
	o.mu.Unlock()
	return trace.Of(ctx, s, schemas, r)
}

// List returns the subscriptions. It connects in the meantime: their states, which are read next, need it.
func (o *observer) List(ctx context.Context) ([]subscriptions.Subscription, error) {
	resources, err := o.conf.openSubscriptions(o.session)
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.Go(func() error { _, err := o.open(ctx); return err })
	all, err := resources.List(ctx)
	if err := cmp.Or(g.Wait(), err); err != nil {
		return nil, err
	}
	out := make([]subscriptions.Subscription, len(all))
	for i := range all {
		out[i] = all[i].Subscription
	}
	return out, nil
}

// Status returns the state of a subscription.
func (o *observer) Status(ctx context.Context, name string) (subscriptions.Status, error) {
	s, err := o.open(ctx)
	if err != nil {
		return subscriptions.Status{}, err
	}
	return s.Status(ctx, name)
}

// Close ends the requests to other processes.
func (o *observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.closed = true
	if o.mu.service == nil {
		return nil
	}
	defer o.mu.kafka.Close()
	return o.mu.service.Close()
}
