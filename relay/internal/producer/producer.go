package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Config configures a producer. All fields are required unless documented as optional.
type Config struct {
	Brokers []string
	Kafka   []kgo.Opt   // optional
	Fence   fence.Fence // optional; its error closes the connections
	// Source is the value of the header ce_source.
	Source         string
	MaxRecordBytes int32
	MaxRecords     int // that are outstanding
	Partitions     int32
	Replication    int16
	Logger         *slog.Logger
}

// Producer sends records to Kafka.
type Producer struct {
	cfg      Config
	observer Observer
	client   *kgo.Client
	// Catalog contains the known topics, Partitions their partitions and the gated ones.
	Catalog    *topics.Catalog
	Partitions topics.Partitions

	// passed counts the records passed to the clients; written is its value when a
	// produce request was last written: no request contained later records.
	passed, written atomic.Uint64

	mu struct {
		sync.Mutex
		larger map[string]largerClient // by topic, where it accepts larger records than client's limit
		all    []*kgo.Client           // clients that were in larger, to be closed
	}
}

// largerClient sends records to a topic whose size limit was raised. A client reads the
// limit of a topic once. If it forgot the topic, the sequence numbers of the partitions
// would restart, and the broker could drop a record as a duplicate. The producer therefore
// uses a second client with its own producer id. Only records sent alone use it, so the
// first client has no outstanding records of the topic.
type largerClient struct {
	client *kgo.Client
	limit  int32
}

// New returns a producer. It connects with the first request.
func New(cfg Config, observer Observer) (*Producer, error) {
	p := &Producer{cfg: cfg, observer: observer, Catalog: topics.NewCatalog(cfg.Partitions, cfg.Replication, cfg.MaxRecordBytes)}
	p.Partitions.Log = cfg.Logger
	p.mu.larger = make(map[string]largerClient)
	client, err := p.newClient(kgo.ProducerBatchMaxBytesFn(p.Catalog.MaxBytes))
	if err != nil {
		return nil, err
	}
	p.client = client
	p.Catalog.Admin = kadm.NewClient(client)
	return p, nil
}

// newClient returns a producing client; size bounds its batches by topic.
func (p *Producer) newClient(size kgo.Opt) (*kgo.Client, error) {
	// The relay's own options come last: nothing in p.cfg.Kafka overrides them.
	opts := append([]kgo.Opt{
		kgo.ClientID("outbox-relay"), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(500 * time.Millisecond), // nothing is published earlier after a leader change
	}, p.cfg.Kafka...)
	opts = append(opts,
		kgo.SeedBrokers(p.cfg.Brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// A broker that shuts down also closes connections that were just opened. Without
		// this option the client treats that as a configuration error and fails a record
		// that an earlier attempt may have written.
		kgo.AlwaysRetryEOF(),
		kgo.RecordPartitioner(partitioner(&p.Partitions)),
		// The caller's budget is the bound; the client's own bound must never be reached.
		kgo.MaxBufferedRecords(p.cfg.MaxRecords+1),
		kgo.WithHooks(hooks{p}),
		kgo.ProducerOnDataLossDetected(p.observer.DataLost),
		kgo.ProducerBatchMaxBytes(p.cfg.MaxRecordBytes),
		size,
	)
	if p.cfg.Fence != nil {
		var err error
		if opts, err = fence.Connections(opts, p.cfg.Fence); err != nil {
			return nil, err
		}
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return client, nil
}

// Clients returns the client, and an administrator of topics that uses it.
func (p *Producer) Clients() (*kgo.Client, *kadm.Client) { return p.client, p.Catalog.Admin }

// Ping sends a request that changes nothing to a broker.
func (p *Producer) Ping(ctx context.Context) error { return p.client.Ping(ctx) }

// Send passes a record of a flight to a client. It does not block, and does not call done
// with the result before it returns. alone means that no other record of the
// partition is outstanding: the record may then have the topic's current size.
func (p *Producer) Send(f *Flight, r *kgo.Record, alone bool, done func(*kgo.Record, error)) {
	p.passed.Add(1)
	client := p.client
	if alone {
		client = p.clientOf(r.Topic)
	}
	client.TryProduce(f, r, done)
}

// clientOf returns the client that sends records of the topic's current size.
func (p *Producer) clientOf(topic string) *kgo.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.mu.larger[topic]; ok {
		return c.client
	}
	return p.client
}

// IsTooLarge reports whether the error of a record is that it is too large.
func IsTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// recordOverhead is an upper bound of the size that key, CloudEvents headers and batch
// header add to the payload and headers of a small event.
const recordOverhead = 2048

// MayBeTooLarge reports whether the record of an event may exceed the client's limit for
// its topic. The client fails such a record alone, before it is in a batch. All other
// failures also return the records after it.
func (p *Producer) MayBeTooLarge(e *outbox.Event, topic string) bool {
	size := len(e.Payload) + recordOverhead + 4*(len(e.Type)+len(e.AggregateType)+len(e.AggregateText)+len(e.IDText)+len(e.ContentType)+len(p.cfg.Source))
	for k, v := range e.Headers {
		size += len(k) + len(v) + 20
	}
	return size > int(p.Catalog.MaxBytes(topic))
}

// ReadLimit reads the current record size limit of a topic that refused a record, and
// creates a client for larger records if the topic accepts them.
func (p *Producer) ReadLimit(ctx context.Context, topic string) {
	n, ok := p.Catalog.MessageBytes(ctx, topic)
	if !ok || ctx.Err() != nil {
		return
	}
	limit := min(n, p.cfg.MaxRecordBytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.Catalog.MaxBytes(topic)
	if c, ok := p.mu.larger[topic]; ok {
		before = c.limit
	}
	if limit <= before {
		return
	}
	client, err := p.newClient(kgo.ProducerBatchMaxBytes(limit))
	if err != nil {
		p.cfg.Logger.Warn("no client for larger records", "topic", topic, "err", err)
		return
	}
	p.cfg.Logger.Info("a topic takes larger records than before", "topic", topic, "bytes", limit, "before", before)
	p.mu.larger[topic] = largerClient{client, limit}
	p.mu.all = append(p.mu.all, client)
}

// Know records an existing topic. outstanding reports whether records of the topic are
// outstanding.
//
// A client keeps the first id of a topic, so a topic that was deleted and created again
// must be purged from the client. The purge returns the client's records of the topic,
// although the broker may have them too, and restarts the sequence numbers of its
// partitions. The same topic is therefore not purged while records are outstanding: a
// broker that temporarily does not know it is no reason to send them twice. When none
// is outstanding, the purge corrects an id that the client read from an outdated broker.
func (p *Producer) Know(topic string, found *topics.Found, outstanding func(topic string) bool) {
	other, strange := p.Catalog.Replaced(topic, found)
	if other || strange && !outstanding(topic) {
		p.client.PurgeTopicsFromProducing(topic)
		if c := p.clientOf(topic); c != p.client {
			c.PurgeTopicsFromProducing(topic)
		}
	}
	p.Partitions.Know(topic, found.Partitions)
	p.Catalog.Know(topic, found)
}

// Close closes the clients. Nothing is sent or read afterwards.
func (p *Producer) Close() {
	p.client.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.all {
		c.Close()
	}
}
