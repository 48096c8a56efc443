package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/internal/whereis"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// CheckMessages returns the errors of settings of the messages API that need no connection.
func (c *Config) CheckMessages(log *slog.Logger) error {
	_, server := c.apiServer(c.Messages.Addr, nil, log)
	_, kafka := c.Kafka.Options()
	return errors.Join(server, kafka, c.checkPayloads())
}

// ListenMessages listens on messages.addr, with TLS if there is a certificate. Beyond loopback it
// requires TLS and tokens, unless http.insecure is set.
func (c *Config) ListenMessages(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	return c.HTTP.listen(ctx, log, c.Messages.Addr, "messages.addr", "--messages-addr")
}

// NewMessageServer returns the server of the messages API, with the event streams of the hub,
// which runs beside it.
func NewMessageServer(c *Config, session *gocql.Session, s *Services, reg prometheus.Registerer, log *slog.Logger) (*apiserver.Server, *stream.Hub, error) {
	hub, err := newHub(c, session, reg, log)
	if err != nil {
		return nil, nil, err
	}
	api := s.messages.HTTP()
	api.Routes, api.Problems = append(api.Routes, hub.Register), append(api.Problems[:len(api.Problems):len(api.Problems)], stream.Problems()...)
	server, err := c.newServer(c.Messages.Addr, api, reg, log)
	return server, hub, err
}

// StartMessages starts the messages API and the event streams on the listener that listen opens;
// they answer when StartMessages returns. They end with ctx, or by Shutdown. beside contains the
// services of another API in the same process; nil creates its own.
func StartMessages(ctx context.Context, c *Config, session *gocql.Session, beside *Services, reg prometheus.Registerer, log *slog.Logger, listen Listening) (*API, error) {
	return startWith(ctx, c, session, beside, Parts{Messages: true}, reg, log, listen, func(s *Services) (*apiserver.Server, func(context.Context) error, error) {
		server, hub, err := NewMessageServer(c, session, s, reg, log)
		if err != nil {
			return nil, nil, err
		}
		return server, hub.Run, nil
	})
}

// newMessages returns the API of messages on the session. It completes conf by the settings of
// messages. closeStore closes its store of payloads.
func newMessages(ctx context.Context, c *Config, session *gocql.Session, subs *observer, conf messages.Config) (api *messages.API, closeStore func() error, err error) {
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, nil, err
	}
	finder := messageFinder{finder: whereis.New(append(opts, kgo.SeedBrokers(c.Kafka.Seeds...))...), log: conf.Logger}
	if c.Scylla.Has(schema.Subscriptions) {
		finder.subscriptions = subs
	}
	if c.Scylla.Has(schema.DeadLetters) {
		store, err := dlq.Open(session, c.Scylla.Keyspace)
		if err != nil {
			return nil, nil, err
		}
		conf.DeadLetters = messageDeadLetters{store}
	}
	if conf.Payloads, closeStore, err = payloadStore(ctx, c); err != nil {
		return nil, nil, err
	}
	conf.Topics, conf.Reserved, conf.MaxMessageBytes, conf.MessagesPerSecond = c.Messages.Topics, reservedTopics(c), c.Messages.MaxBytes, c.Messages.PerSecond
	conf.Finder = finder
	service, err := messages.NewService(session, conf)
	if err != nil {
		return nil, nil, errors.Join(cli.Usage(err), closeStore())
	}
	return messages.NewAPI(service), closeStore, nil
}

// payloadStore opens archive.url for the payloads of messages that do not fit into an
// event. It is nil if messages.max_bytes permits none.
func payloadStore(ctx context.Context, c *Config) (s payload.Store, closeStore func() error, err error) {
	if c.Messages.MaxBytes <= outbox.MaxEventBytes {
		return nil, func() error { return nil }, nil
	}
	if err := c.checkPayloads(); err != nil {
		return nil, nil, err
	}
	a, err := archive.Open(ctx, c.Archive.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("archive.url: %w", err)
	}
	return a, a.Close, nil
}

// reservedTopics returns patterns of the topics of the relay's own events and of its control
// topics, as far as the configuration contains them.
func reservedTopics(c *Config) []string {
	out := []string{share.ControlTopic("*")}
	confs, err := c.RelayConfigs()
	if err != nil { // the relay would not start with it; reserve its defaults
		confs = []relay.Config{{Settings: relay.Defaults()}}
	}
	for i := range confs {
		conf := &confs[i]
		out = slices.AppendSeq(out, maps.Values(conf.Topics))
		for _, e := range OrderEvents {
			out = append(out, relay.ExpandTopic(TopicTemplate(conf), e, "order"))
		}
		// A template of placeholders only would reserve every topic.
		if p := relay.ExpandTopic(TopicTemplate(conf), "*", "*"); strings.Trim(p, "*._-") != "" {
			out = append(out, p)
		}
	}
	return out
}

// messageDeadLetters implements messages.DeadLetters by the table of dead letters.
type messageDeadLetters struct{ store *dlq.Store }

// DeadLetter implements messages.DeadLetters.
func (l messageDeadLetters) DeadLetter(ctx context.Context, event gocql.UUID) (messages.DeadLetter, bool, error) {
	x, err := l.store.Read(ctx, event)
	if errors.Is(err, dlq.ErrNotFound) {
		return messages.DeadLetter{}, false, nil
	}
	if err != nil {
		return messages.DeadLetter{}, false, err
	}
	out := messages.DeadLetter{State: messages.DLQPending, Since: x.FirstFailedAt.UTC(), At: x.LastFailedAt.UTC(), Error: x.ErrorClass}
	if x.ErrorText != "" {
		out.Error += ": " + x.ErrorText
	}
	switch x.Status {
	case dlq.Pending:
		if x.Replays > 0 {
			out.State = messages.Retrying
		}
	case dlq.Processing:
		out.State = messages.DLQProcessing
	case dlq.Failed:
		out.State = messages.Failed
	case dlq.Resolved:
		out.State, out.At = messages.Resolved, x.ResolvedAt.UTC()
	case dlq.Archived:
		out.State, out.At = messages.Archived, x.ResolvedAt.UTC()
	}
	return out, true, nil
}

// messageFinder finds messages in their topics and in subscriptions.
type messageFinder struct {
	finder        *whereis.Finder
	subscriptions *observer // nil without subscriptions
	log           *slog.Logger
}

// Find implements messages.Finder.
func (f messageFinder) Find(ctx context.Context, topic string, key []byte, event gocql.UUID, since time.Time) (messages.Place, bool, error) {
	r, err := f.finder.Find(ctx, topic, key, event, since)
	if err != nil || r == nil {
		return messages.Place{}, false, err
	}
	p := messages.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp.UTC()}
	if f.subscriptions == nil {
		return p, true, nil
	}
	if p.Subscriptions, err = f.subscriptions.Of(ctx, r); err != nil {
		f.log.WarnContext(ctx, "failed to read the state of a message in subscriptions", "event_id", event, "topic", topic, "err", err)
		p.Note = "The subscriptions are unreadable at the moment."
	}
	return p, true, nil
}

// NewScheduler returns the scheduler, which writes due messages to the outbox and notifies
// the relays of that table. It is nil if relay.scheduled_per_second is off, or if none of the relays
// reads the table.
func NewScheduler(c *Config, session *gocql.Session, relays *Sharing, reg prometheus.Registerer, log *slog.Logger) (*schedule.Scheduler, error) {
	table := slices.IndexFunc(relays.confs, func(conf relay.Config) bool {
		return TableName(&conf) == c.Scylla.Keyspace+"."+outbox.DefaultTableName
	})
	if c.Relay.ScheduleRate == 0 || table < 0 {
		return nil, nil
	}
	s, err := schedule.New(schedule.Config{
		Store: schedule.NewStore(session, consistency, c.Scylla.Timeout), Rate: c.Relay.ScheduleRate, Logger: log, Registerer: reg,
		Committed: func(id outbox.ID) { relays.committed(table, id) },
		Lag:       func() (time.Duration, bool) { return relays.tailLag(table) },
	})
	if err != nil {
		return nil, cli.Usage(err)
	}
	return s, nil
}

// WithScheduler calls run, and runs the scheduler, which may be nil, until run returns.
func WithScheduler(ctx context.Context, s *schedule.Scheduler, run func(context.Context) error) error {
	if s == nil {
		return run(ctx)
	}
	beside, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(beside) }()
	err := run(ctx)
	stop()
	return errors.Join(err, <-ended)
}
