package publish

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Publisher writes events to Kafka, the events of an aggregate in the order in which they
// were accepted, and each event once however often it is offered.
//
// Events of one aggregate for one topic are sent without waiting for each other. The
// idempotent producer keeps their order; when it returns one, it returns all later
// ones. An event for another topic waits until the earlier events are acknowledged.
// The budget bounds events that are sent and not acknowledged; Offer waits for room.
//
// It is safe for concurrent use, and publishes events of different aggregates concurrently.
// Events of one aggregate that several callers offer
// concurrently are published by their numbers: a caller that finds one missing claims
// the aggregate until the gap is filled.
type Publisher struct {
	cfg      *Config
	log      *slog.Logger
	Metrics  *Metrics
	budget   *budget.Budget
	producer *producer.Producer
	calls    *calls.Calls
	// tableHeader is in each record.
	tableHeader kgo.RecordHeader
	epochs      epochHeaders
	writer      deadLetterWriter
	load        loadMeter
	losses      losses
	conflicts   conflicts
	tailed      *swept.Tracker
	recordClock recordClock
	spans       *trace.Messages
	// proofs finds out whether an event that is not in the dedup index is published; nil
	// means that it is.
	proofs Prover
	// topicNames has a topic before its first event is sent; nil if a start after a crash does not
	// need it.
	topicNames TopicNames
	// fatal receives an error that stops the relay.
	fatal  func(error)
	ctx    context.Context // ends when the publisher is closed
	stop   context.CancelFunc
	wg     sync.WaitGroup
	woken  chan struct{} // wakes the replayer
	names  *topics.Names
	near   dedup.Near
	driver driver
}

// New returns a publisher. It connects with the first request.
func New(cfg *Config, m *Metrics, fatal func(error)) (*Publisher, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{
		cfg: cfg, log: cfg.Logger, Metrics: m, fatal: fatal, ctx: ctx, stop: stop,
		budget:    budget.New(cfg.MaxInFlightRecords, cfg.MaxInFlightBytes),
		calls:     newCalls(cfg, m),
		load:      loadMeter{cfg: cfg},
		conflicts: conflicts{log: cfg.Logger, count: m.SequenceConflicts, ids: m.IDConflicts, suspects: make(chan cdclog.StoredEvent, 1)},
		losses:    losses{log: cfg.Logger, count: m.dataLoss, recreated: m.recreated},
		tailed:    swept.New(!cfg.Tail, cfg.ConfidenceWindow),
		spans:     trace.NewMessages(cfg.Tracer),
		woken:     make(chan struct{}, 1),
		names:     topics.NewNames(cfg.Topics, cfg.TopicTemplate),
	}
	p.tableHeader = tableHeader(p.cfg.tableName())
	p.writer = newDeadLetterWriter(p)
	var err error
	p.producer, err = producer.New(producer.Config{
		Brokers: cfg.Brokers, Kafka: cfg.Kafka, Fence: cfg.Fence, Source: cfg.Source, MaxRecordBytes: cfg.MaxRecordBytes,
		MaxRecords: cfg.MaxInFlightRecords + cfg.ReplayConcurrency, Partitions: cfg.Partitions, Replication: cfg.Replication,
		ClockMargin: cfg.ReadBackMargin, Logger: cfg.Logger,
	}, observer{p.calls, &p.losses})
	if err != nil {
		stop()
		return nil, err
	}
	p.driver.init(p, newCell(cfg, broker{p.producer, p.names, p}, p.calls, p.budget, p.tailed, m))
	go p.driver.run()
	return p, nil
}

// EnsureTopics creates topics in the background and logs permanent failures.
func (p *Publisher) EnsureTopics(byType map[string]string) {
	for _, topic := range byType {
		p.wg.Go(func() {
			if err := p.EnsureTopic(p.ctx, topic); err != nil && failure.Classify(err) == failure.Permanent {
				p.log.Error("failed to create topic", "topic", topic, "err", err)
			}
		})
	}
}

// WritesDeadLetters reports whether a table for dead letters exists.
func (p *Publisher) WritesDeadLetters() bool { return p.cfg.writesDeadLetters() }

// Swept returns the tracker of the tail reader's activity.
func (p *Publisher) Swept() *swept.Tracker { return p.tailed }

// Kafka returns the producer's client, and an administrator of topics that uses it.
func (p *Publisher) Kafka() (*kgo.Client, *kadm.Client) { return p.producer.Clients() }

// ExpectTopics names the topics that earlier processes published to: one that is missing was
// deleted. It is called before anything is published.
func (p *Publisher) ExpectTopics(names []string) {
	for _, topic := range names {
		p.producer.Catalog.Expect(topic)
	}
}

// SetTopicNames makes the publisher store the name of a topic before its first event is
// sent. It is called before anything is published.
func (p *Publisher) SetTopicNames(n TopicNames) { p.topicNames = n }

// SetEpochs sets the epochs of the table. It is called before anything is published.
func (p *Publisher) SetEpochs(all epochs.Epochs) { p.epochs = newEpochHeaders(all) }

// Drain waits until all publishable events are published and no replay is in progress,
// or ctx ends, and returns the number of remaining events.
func (p *Publisher) Drain(ctx context.Context) (left int) {
	for {
		done := false
		p.ask(func(c *cell) {
			var blocked int
			left, blocked = c.remaining()
			shut := len(c.sending) == 0 && c.calls.State() == BreakerOpen && c.dead.writing == 0 // nothing is in progress
			done = c.cfg.fenced() || (left == blocked || shut) && c.dead.replays == 0
		})
		if done || retry.Wait(ctx, 10*time.Millisecond) != nil {
			return left
		}
	}
}

// Close stops the publisher and the runs of its replayers, and waits for their end. Unacknowledged
// events count as not published, although the broker may have them.
func (p *Publisher) Close() {
	p.ask(func(c *cell) { c.closed = true })
	p.stop()
	p.wg.Wait()
	p.producer.Close()
	p.driver.end()
}

// TopicName returns the topic of an event.
func (p *Publisher) TopicName(e *outbox.Event) (string, error) { return p.names.Of(e) }

// ReplayNow makes dead letters due immediately, regardless of their strategies.
func (p *Publisher) ReplayNow(ids ...gocql.UUID) {
	p.ask(func(c *cell) {
		for _, id := range ids {
			c.dead.Change(id, func(ref *chains.Ref) { ref.At = chains.AtOnce })
		}
	})
	p.wake()
}

// Passed records that an earlier relay published the events written up to the given time.
func (p *Publisher) Passed(upTo time.Time) {
	if !upTo.IsZero() {
		p.ask(func(c *cell) { c.dead.passed = upTo.UnixMicro() })
	}
}

// wake makes the replayer check for due chains.
func (p *Publisher) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// Limit sets the number of events that may be published while gates are closed.
// Checkpoints do not pass the waiting events, so the next start has to remember all
// events that were published since.
func (p *Publisher) Limit(events int) { p.ask(func(c *cell) { c.gateRoom.limit(events) }) }

// Gate prevents publishing to a partition until the publisher is closed. partitions is
// the number of partitions of its topic.
func (p *Publisher) Gate(key Partition, partitions int) {
	p.ask(func(c *cell) {
		c.gated = true
		p.producer.Partitions.Gate(key.Topic, key.Part, partitions)
	})
}

// Prover finds events in the topics. *readback.Proofs implements it.
type Prover interface {
	earlier.Prover
	// FindIDOfAnother reports whether the newest records of the topics contain another event with
	// the id of the event, and not the event.
	FindIDOfAnother(ctx context.Context, f *cdclog.StoredEvent) (bool, error)
	// FindRecords returns the ids of the events that the topics contain since a time; events has their
	// numbers by id.
	FindRecords(ctx context.Context, events map[gocql.UUID]int64, since time.Time) (map[gocql.UUID]struct{}, error)
}

// SetProver sets the prover, before events are offered.
func (p *Publisher) SetProver(to Prover) {
	p.proofs = to
	p.wg.Go(p.verifySuspects)
}
