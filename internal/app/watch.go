package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// newHub returns the hub of the event streams.
func newHub(c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger) (*stream.Hub, error) {
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	schemas, err := c.Kafka.SchemaRegistry()
	if err != nil {
		return nil, err
	}
	h, err := stream.New(stream.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Topics: c.readableTopics(session, log), Schemas: schemas,
		Logger: log, Registerer: reg, Tracer: c.Tracer,
	})
	if err != nil {
		return nil, cli.Usage(err)
	}
	return h, nil
}

// readableTopics returns the topics of watch.topics. If it is empty these are the topics of
// orders and messages, the topics that the relay's configuration names, and the topics that
// the relay has published to.
func (c *Config) readableTopics(session *gocql.Session, log *slog.Logger) stream.Topics {
	if len(c.Watch.Topics) > 0 {
		return stream.Topics{Patterns: c.Watch.Topics}
	}
	patterns := stream.DefaultTopics()
	confs, err := c.RelayConfigs()
	if err != nil { // the relay would not start with it
		return stream.Topics{Patterns: patterns}
	}
	var tables []string
	for i := range confs {
		tables = append(tables, TableName(&confs[i]))
		patterns = append(patterns, NamedTopics(&confs[i])...)
	}
	p := published{session: session, keyspace: c.Scylla.Keyspace, relay: c.Relay.Name, tables: tables, log: log}
	return stream.Topics{Patterns: patterns, Published: p.topics}
}

// NamedTopics returns the topics that the configuration of a relay names, sorted; the topics
// of a template with a variable depend on the events.
func NamedTopics(c *relay.Config) []string {
	topics := slices.AppendSeq([]string(nil), maps.Values(c.Topics))
	if !strings.ContainsAny(c.TopicTemplate, "{$") {
		topics = append(topics, c.TopicTemplate)
	}
	slices.Sort(topics)
	return slices.Compact(slices.DeleteFunc(topics, func(t string) bool { return t == "" }))
}

// published reads the topics that a relay has published to.
type published struct {
	session         *gocql.Session
	keyspace, relay string
	tables          []string
	log             *slog.Logger

	mu   sync.Mutex
	last []string
}

// topics returns the topics. Event streams need the broker alone: without the database it
// returns the topics of the last read.
func (p *published) topics(ctx context.Context) []string {
	topics, err := p.read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.log.WarnContext(ctx, "failed to read the topics of the relay; using those of the last read", "err", err)
		return p.last
	}
	p.last = topics
	return topics
}

func (p *published) read(ctx context.Context) (topics []string, err error) {
	for _, table := range p.tables {
		iter := p.session.Query("SELECT topic FROM "+p.keyspace+".relay_topics WHERE relay = ? AND table_name = ?", p.relay, table).WithContext(ctx).Idempotent(true).Iter()
		var topic string
		for iter.Scan(&topic) {
			topics = append(topics, topic)
		}
		if err := iter.Close(); err != nil {
			return nil, fmt.Errorf("read the topics of relay %s: %w", p.relay, err)
		}
	}
	return topics, nil
}
