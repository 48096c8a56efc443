package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Publisher writes events to Kafka, those of an aggregate in the order in which they
// were accepted, and each event once however often it is offered.
//
// Events of one aggregate for one topic are sent without waiting for each other. The
// idempotent producer keeps their order; when it returns one, it returns all later
// ones. An event for another topic waits until the earlier events are acknowledged.
// The budget bounds events that are sent and not acknowledged; Offer waits for room.
//
// It is safe for concurrent use. Events of one aggregate that several callers offer
// concurrently are published by their numbers: a caller that finds one missing claims
// the aggregate until the gap is filled.
type Publisher struct {
	cfg        *Config
	log        *slog.Logger
	Metrics    *Metrics
	budget     *budget.Budget
	client     *kgo.Client
	topics     *topics.Catalog
	partitions topics.Partitions
	larger     map[string]largerClient // by topic, where it accepts larger records than client's limit
	clients    []*kgo.Client           // clients of larger, to be closed
	// remember saves the name of a topic before its first event is sent; nil if a
	// start after a crash does not need it.
	remember func(context.Context, string) error
	// proofs finds out whether an event that is not in the dedup index is published; nil
	// means that it is.
	proofs prover
	// fatal receives an error that stops the relay.
	fatal func(error)
	ctx   context.Context // ends when the publisher is closed
	stop  context.CancelFunc
	wg    sync.WaitGroup

	// handed counts the records given to the producer; wired is its value when a
	// produce request was last written: no request contained later records.
	handed, wired atomic.Uint64
	heard         atomic.Int64  // when a broker last answered a request, in Unix nanoseconds
	nudged        chan struct{} // wakes watch
	broken        chan error    // connections that failed
	woken         chan struct{} // wakes the replayer
	burying       chan struct{} // holds a token per dead letter being written
	loss          atomic.Pointer[DataLoss]
	load          atomic.Pointer[Load] // as measured last, nil if unknown

	mu      sync.Mutex
	closed  bool
	breaker *breaker
	call    *call   // the call of records sent now
	calls   []*call // calls with records in progress
	struck  time.Time
	acked   time.Time               // when a record was last acknowledged
	doubt   bool                    // a call failed, and none was answered since
	refused map[*lane]struct{}      // lanes that admit refused
	flows   map[Partition]*partFlow // partitions with records outstanding
	stuck   struct {                // records of stalled partitions in the producer
		open  int
		bytes int64
	}
	pinging   bool
	asking    int // callers of attempt
	letters   *letters
	unwritten map[gocql.UUID]UnstoredDeadLetter // dead letters that could not be stored so far
	sending   map[*lane]struct{}                // lanes with records outstanding
	replaying map[*lane]struct{}
	lanes     map[gocql.UUID]*lane // aggregates with events in progress
	items     map[gocql.UUID]*item // unacknowledged events, by id
	bytes     int64
	gateRoom  *int // events that may still be published while partitions are gated; nil without gates
	held      map[gocql.UUID]*Hold
	dedup     *dedup.Index
	tailed    *swept.Tracker               // has its own lock
	older     *older.Rows                  // rows that a backfill has not offered yet, nil without one
	claims    map[gocql.UUID]chan struct{} // aggregates in which a caller fills a gap
	probes    map[Partition]*probe         // by partition with a suspect
	names     *topics.Names
}

// Hold is an aggregate whose front event cannot be published.
type Hold struct {
	AggregateID gocql.UUID
	EventID     gocql.UUID
	Sequence    int64
	Topic       string
	since       time.Time
	attempts    int
	Err         error
}

// New returns a publisher. It connects with the first request.
func New(cfg *Config, m *Metrics, fatal func(error)) (*Publisher, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{
		cfg: cfg, log: cfg.Logger, Metrics: m, fatal: fatal, ctx: ctx, stop: stop,
		budget:     budget.New(cfg.MaxInFlightRecords, cfg.MaxInFlightBytes),
		lanes:      make(map[gocql.UUID]*lane),
		items:      make(map[gocql.UUID]*item),
		claims:     make(map[gocql.UUID]chan struct{}),
		names:      topics.NewNames(cfg.Topics, cfg.TopicTemplate),
		held:       make(map[gocql.UUID]*Hold),
		probes:     make(map[Partition]*probe),
		topics:     topics.NewCatalog(cfg.Partitions, cfg.Replication, cfg.MaxRecordBytes),
		partitions: topics.Partitions{Log: cfg.Logger},
		larger:     make(map[string]largerClient),
		breaker:    newBreaker(cfg, m),
		letters:    newLetters(cfg),
		unwritten:  make(map[gocql.UUID]UnstoredDeadLetter),
		refused:    make(map[*lane]struct{}),
		flows:      make(map[Partition]*partFlow),
		sending:    make(map[*lane]struct{}),
		replaying:  make(map[*lane]struct{}),
		nudged:     make(chan struct{}, 1),
		broken:     make(chan error, 1),
		woken:      make(chan struct{}, 1),
		burying:    make(chan struct{}, WriteConcurrency),
	}
	p.dedup = dedup.New(cfg.MaxRememberedEvents, cfg.MaxAggregates, func(aggregate gocql.UUID) bool { return p.lanes[aggregate] != nil })
	p.tailed = swept.New(!cfg.Tail, cfg.ConfidenceWindow)
	client, err := p.newClient(kgo.ProducerBatchMaxBytesFn(p.topics.MaxBytes))
	if err != nil {
		stop()
		return nil, err
	}
	p.client = client
	p.topics.Admin = kadm.NewClient(client)
	p.wg.Go(p.watch)
	return p, nil
}

// newClient returns a producing client; size bounds its batches by topic.
func (p *Publisher) newClient(size kgo.Opt) (*kgo.Client, error) {
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
		kgo.RecordPartitioner(partitioner(&p.partitions)),
		// The budget is the bound; the client's own bound must never be reached.
		kgo.MaxBufferedRecords(p.cfg.MaxInFlightRecords+p.cfg.ReplayConcurrency+1),
		kgo.WithHooks(connections{p}),
		kgo.ProducerOnDataLossDetected(p.lost),
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

// pump sends the events of the lane that may be sent now. Called locked.
func (p *Publisher) pump(l *lane) {
	for !p.closed && !p.cfg.fenced() && l.failed == nil && !l.paused && !l.writing && !l.turned.Load() {
		it := l.firstQueued()
		switch {
		case it == nil, p.gated(l, it):
			return
		case l.ended != nil && !l.claimed():
			p.endReplay(l, replayEnd{err: errClaimLost})
			return
		case p.stays(l, it):
			if l.outstanding > 0 && (l.ended != nil || !p.letters.Blocks(l.id)) {
				return
			}
			if l.ended != nil {
				p.endReplay(l, replayEnd{err: fmt.Errorf("%w: %w", errBreakerOpen, p.breaker.status.Why())})
			} else if p.mayWrite(l, it) {
				p.write(l)
			}
			return
		case l.outstanding > 0 && p.stalls(l.part, l):
			return
		case l.outstanding > 0 && (l.suspect || l.alone || it.topic != l.part.Topic || p.mayBeTooLarge(it)):
			return
		case it.topicErr != nil:
			p.refuse(l, it.topicErr)
			return
		}
		if wait := time.Until(it.event.DeliverAt); !it.event.DeliverAt.IsZero() && wait > 0 {
			p.resume(l, wait)
			return
		}
		if !p.topics.Known(it.topic) {
			p.makeTopic(it.topic, l)
			return
		}
		key := p.partOf(l, it)
		if p.stalls(key, l) || p.waitsForProbe(l, key) || !p.send(l, it, key) {
			return
		}
	}
}

// stays reports whether the item must not be sent now. Called locked.
func (p *Publisher) stays(l *lane, it *item) bool {
	if p.breaker.status.State == BreakerOpen {
		return true
	}
	return l.ended == nil && (it.death != nil || p.letters.Blocks(l.id) && !p.cfg.relaxed(it.event.Type))
}

// send passes the item to the producer and reports whether the breaker admitted it. It
// is called locked, which keeps the order of the lane. It neither blocks nor runs the
// callback before it returns.
func (p *Publisher) send(l *lane, it *item, key Partition) bool {
	if it.call = p.admit(); it.call == nil {
		p.refused[l] = struct{}{}
		if p.breaker.moved {
			p.nudge()
		}
		return false
	}
	it.call.open++
	it.state = sent
	it.attempts++
	it.handed = time.Now()
	p.handed.Add(1)
	if l.outstanding == 0 {
		l.ctx.begin(p)
		p.sending[l] = struct{}{}
	}
	l.outstanding++
	l.alone = p.mayBeTooLarge(it)
	p.flow(it, key)
	l.part = key
	p.clientFor(l, it).TryProduce(&l.ctx, p.record(it), func(r *kgo.Record, err error) { p.done(l, it, r, err) })
	return true
}

// done processes the producer's result.
func (p *Publisher) done(l *lane, it *item, r *kgo.Record, err error) {
	p.mu.Lock()
	l.outstanding--
	if l.outstanding == 0 {
		l.partition.Store(-1)
		l.turned.Store(false)
		delete(p.sending, l)
	}
	if p.ebb(it, err == nil) && p.probes[it.part] != nil {
		defer p.pumpProbe(it.part)
	}
	if err != nil && turned(r) {
		it.state, it.attempts = queued, it.attempts-1
		p.answered(it.call, errMerged)
		it.call = nil
		p.next(l)
		p.mu.Unlock()
		return
	}
	made := it.call.root().attempt
	if errors.Is(err, errGivenUp) {
		made-- // the last one was canceled
	}
	it.attempts = max(it.attempts, made)
	p.answered(it.call, p.outcome(l, err))
	it.call = nil
	if p.breaker.moved {
		p.nudge()
	}
	if err != nil {
		p.back(l, it, err)
		p.mu.Unlock()
		return
	}
	if l.suspect {
		l.suspect = false
		p.endProbe(l)
		p.release(l)
	}
	if l.ended != nil {
		it.state = acked
		p.replayed(l, it, r)
	} else {
		p.settle(l, it, true)
		p.next(l)
		p.rest(l)
	}
	mayGive := p.spendGateRoom()
	p.mu.Unlock()

	if l.ended == nil && mayGive {
		p.budget.Give(it.bytes)
	}
	now := time.Now()
	p.Metrics.Published.WithLabelValues(it.topic).Inc()
	p.Metrics.publishSeconds.Observe(now.Sub(it.handed).Seconds())
	if it.written > 0 {
		p.Metrics.commitSeconds.Observe(float64(now.UnixMicro()-it.written) / 1e6)
	}
	if !p.log.Enabled(p.ctx, slog.LevelDebug) {
		return // avoid allocating the values of the message
	}
	p.log.Debug("event published", "event_id", it.event.ID, "aggregate_id", it.event.AggregateID, "topic", it.topic, "attempt", it.attempts, trace.Attrs(it.event.Headers))
}

// outcome returns the result that the breaker counts for a result of the producer: a
// refusal by the broker is an answer.
func (p *Publisher) outcome(l *lane, err error) error {
	switch {
	case err == nil:
		return nil
	case l.ctx.given.Load(), errors.Is(err, errGivenUp):
		return errMerged
	case failure.Classify(err) == failure.Transient:
		return err
	case failure.Classify(err) == failure.Stopped:
		return errMerged
	default:
		return nil
	}
}

// back queues an item that was not written. Called locked.
func (p *Publisher) back(l *lane, it *item, err error) {
	it.state = queued
	class := failure.Classify(err)
	if class != failure.Stopped {
		p.Metrics.Failures.WithLabelValues(class.String()).Inc()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		p.topics.Forget(it.topic, errors.Is(err, kerr.UnknownTopicID))
	}
	// Of several errors returned together the most serious decides.
	if l.failed == nil || failure.Classify(l.failed) < class {
		l.failed = err
	}
	p.next(l)
}

// next continues the lane, after a failure once all its sent items are returned.
// Called locked.
func (p *Publisher) next(l *lane) {
	if l.failed == nil {
		p.pump(l)
		return
	}
	if l.outstanding > 0 {
		return
	}
	err := l.failed
	front := l.items[0]
	switch failure.Classify(err) {
	case failure.Stopped:
		// The lane stays as it is; the checkpoint does not pass its events.
	case failure.Fatal:
		p.fatal(fmt.Errorf("publish event %s to topic %s: %w", front.event.ID, front.topic, err))
	case failure.Permanent:
		p.refuse(l, err)
	case failure.Transient:
		p.endProbe(l)
		p.retry(l, front, err)
	}
}

// retry continues a lane whose front was not written. Called locked, with nothing
// outstanding.
func (p *Publisher) retry(l *lane, front *item, err error) {
	switch {
	case p.breaker.status.State == BreakerOpen, errors.Is(err, errGivenUp):
		l.failed = nil
		p.pump(l)
	case front.attempts >= len(p.cfg.RetryDelays) && l.ended != nil:
		p.endReplay(l, replayEnd{err: usedUp(front, err)})
	case front.attempts >= len(p.cfg.RetryDelays) && p.letters.on():
		p.bury(l, usedUp(front, err))
	default:
		wait := p.cfg.retryWait(front.attempts)
		p.log.Warn("event not published, retrying", "event_id", front.event.ID, "aggregate_id", l.id,
			"topic", front.topic, "attempt", front.attempts, "wait", wait, "err", err, trace.Attrs(front.event.Headers))
		p.resume(l, wait)
	}
}

func usedUp(it *item, err error) error {
	return fmt.Errorf("not acknowledged in %d attempts: %w", it.attempts, err)
}

// release ends a hold. Called locked.
func (p *Publisher) release(l *lane) {
	if l.hold == nil {
		return
	}
	p.log.Info("aggregate released", "aggregate_id", l.id, "held_for", time.Since(l.hold.since))
	delete(p.held, l.id)
	l.hold = nil
}

// resume restarts the lane after wait. Called locked.
func (p *Publisher) resume(l *lane, wait time.Duration) {
	l.paused = true
	time.AfterFunc(wait, func() { p.restart(l) })
}

func (p *Publisher) restart(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.paused, l.failed = false, nil
	p.pump(l)
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
func (p *Publisher) WritesDeadLetters() bool { return p.letters.on() }

// Swept returns the tracker of the tail reader's activity.
func (p *Publisher) Swept() *swept.Tracker { return p.tailed }

// Kafka returns the producer's client, and an administrator of topics that uses it.
func (p *Publisher) Kafka() (*kgo.Client, *kadm.Client) { return p.client, p.topics.Admin }

// OnFirstUse sets the function that saves the name of a topic before its first event is
// sent. It is called before anything is published.
func (p *Publisher) OnFirstUse(remember func(context.Context, string) error) { p.remember = remember }

// Drain waits until all publishable events are published and no replay is in progress,
// or ctx ends, and returns the number of remaining events.
func (p *Publisher) Drain(ctx context.Context) (left int) {
	for {
		left, blocked := p.Remaining()
		if p.cfg.fenced() || (left == blocked || p.shut()) && !p.replays() || retry.Wait(ctx, 10*time.Millisecond) != nil {
			return left
		}
	}
}

// replays reports whether dead letters are being replayed.
func (p *Publisher) replays() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.underWay > 0
}

// shut reports whether the breaker is open and nothing is in progress.
func (p *Publisher) shut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breaker.status.State == BreakerOpen && len(p.sending) == 0 && p.letters.writing == 0
}

// Remaining returns how many events are not acknowledged, and how many of them wait for an
// operator or for their time.
func (p *Publisher) Remaining() (open, blocked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.items) == 0 {
		return 0, 0
	}
	now := time.Now()
	for _, l := range p.lanes {
		if l.blocked(now) {
			blocked += len(l.items)
		}
	}
	return len(p.items), blocked
}

// Close stops the publisher. Unacknowledged events count as not published, although the
// broker may have them.
func (p *Publisher) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
	p.client.Close()
	for _, c := range p.clients {
		c.Close()
	}
}

type publisherState struct {
	Open  int
	Bytes int64
	Held  int
	// Size of the dedup index: events whose rows the sweep has not read, events whose
	// rows it has read, aggregates.
	Fresh, Shown, Aggregates int
	// DeadLetters counts unsettled dead letters, Spilled those written because the
	// breaker was open, Parked the aggregates blocked by a dead letter.
	DeadLetters, Spilled, Parked int
	Breaker                      BreakerStatus
	Stalled                      []StalledTopic
	Unstored                     int
	OldestUnstored               UnstoredDeadLetter
}

// State returns the state of the publisher, zero for a nil publisher.
func (p *Publisher) State() publisherState {
	if p == nil {
		return publisherState{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := publisherState{Open: len(p.items), Bytes: p.bytes, Held: len(p.held)}
	s.Fresh, s.Shown, s.Aggregates = p.dedup.Size()
	s.DeadLetters, _, s.Parked = p.letters.Size()
	s.Spilled = p.letters.Spilled()
	s.Breaker, s.Stalled = p.breaker.status, p.stalled()
	s.Unstored, s.OldestUnstored = p.oldestUnstored()
	return s
}

// OldestSent returns when the oldest item in the producer was passed to it, zero if
// there is none.
func (p *Publisher) OldestSent() (oldest time.Time) {
	if p == nil {
		return oldest
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range p.items {
		if it.state == sent && (oldest.IsZero() || it.handed.Before(oldest)) {
			oldest = it.handed
		}
	}
	return oldest
}

// Holds returns the held aggregates.
func (p *Publisher) Holds() []Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Hold, 0, len(p.held))
	for _, h := range p.held {
		out = append(out, *h)
	}
	return out
}
