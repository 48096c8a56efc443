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
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
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
	cfg      *Config
	log      *slog.Logger
	Metrics  *Metrics
	budget   *budget.Budget
	producer *producer.Producer
	calls    *calls.Calls
	losses   losses
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

	woken   chan struct{}        // wakes the replayer
	burying chan struct{}        // holds a token per dead letter being written
	load    atomic.Pointer[Load] // as measured last, nil if unknown

	mu      sync.Mutex
	closed  bool
	refused map[*lane]struct{}      // lanes that admit refused
	flows   map[Partition]*partFlow // partitions with records outstanding
	stuck   struct {                // records of stalled partitions in the producer
		open  int
		bytes int64
	}
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
		budget:    budget.New(cfg.MaxInFlightRecords, cfg.MaxInFlightBytes),
		lanes:     make(map[gocql.UUID]*lane),
		items:     make(map[gocql.UUID]*item),
		claims:    make(map[gocql.UUID]chan struct{}),
		names:     topics.NewNames(cfg.Topics, cfg.TopicTemplate),
		held:      make(map[gocql.UUID]*Hold),
		probes:    make(map[Partition]*probe),
		calls:     newCalls(cfg, m),
		losses:    losses{log: cfg.Logger, count: m.dataLoss},
		letters:   newLetters(cfg),
		unwritten: make(map[gocql.UUID]UnstoredDeadLetter),
		refused:   make(map[*lane]struct{}),
		flows:     make(map[Partition]*partFlow),
		sending:   make(map[*lane]struct{}),
		replaying: make(map[*lane]struct{}),
		woken:     make(chan struct{}, 1),
		burying:   make(chan struct{}, WriteConcurrency),
	}
	p.dedup = dedup.New(cfg.MaxRememberedEvents, cfg.MaxAggregates, func(aggregate gocql.UUID) bool { return p.lanes[aggregate] != nil })
	p.tailed = swept.New(!cfg.Tail, cfg.ConfidenceWindow)
	var err error
	p.producer, err = producer.New(producer.Config{
		Brokers: cfg.Brokers, Kafka: cfg.Kafka, Fence: cfg.Fence, Source: cfg.Source, MaxRecordBytes: cfg.MaxRecordBytes,
		MaxRecords: cfg.MaxInFlightRecords + cfg.ReplayConcurrency, Partitions: cfg.Partitions, Replication: cfg.Replication, Logger: cfg.Logger,
	}, observer{p.calls, &p.losses})
	if err != nil {
		stop()
		return nil, err
	}
	p.wg.Go(p.watch)
	return p, nil
}

// pump sends the events of the lane that may be sent now. Called locked.
func (p *Publisher) pump(l *lane) {
	for !p.closed && !p.cfg.fenced() && l.failed == nil && !l.paused && !l.writing && !l.flight.Rejecting() {
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
				p.endReplay(l, replayEnd{err: fmt.Errorf("%w: %w", errBreakerOpen, p.calls.Status().Why())})
			} else if p.mayWrite(l, it) {
				p.write(l)
			}
			return
		case l.outstanding > 0 && p.stalls(l.part, l):
			return
		case l.outstanding > 0 && (l.suspect || l.alone || it.topic != l.part.Topic || p.producer.MayBeTooLarge(&it.event, it.topic)):
			return
		case it.topicErr != nil:
			p.refuse(l, it.topicErr)
			return
		}
		if wait := time.Until(it.event.DeliverAt); !it.event.DeliverAt.IsZero() && wait > 0 {
			p.resume(l, wait)
			return
		}
		if !p.producer.Catalog.Known(it.topic) {
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
	if p.calls.State() == BreakerOpen {
		return true
	}
	return l.ended == nil && (it.death != nil || p.letters.Blocks(l.id) && !p.cfg.relaxed(it.event.Type))
}

// send passes the item to the producer and reports whether the breaker admitted it. It
// is called locked, which keeps the order of the lane. It neither blocks nor runs the
// callback before it returns.
func (p *Publisher) send(l *lane, it *item, key Partition) bool {
	if it.call = p.calls.Admit(); it.call == nil {
		p.refused[l] = struct{}{}
		return false
	}
	it.state = sent
	it.attempts++
	it.handed = time.Now()
	if l.outstanding == 0 {
		l.flight.Begin()
		p.sending[l] = struct{}{}
	}
	l.outstanding++
	l.alone = p.producer.MayBeTooLarge(&it.event, it.topic)
	p.flow(it, key)
	l.part = key
	p.producer.Send(&l.flight, record(it, p.cfg.Source, p.calls.State()), l.suspect, func(r *kgo.Record, err error) { p.done(l, it, r, err) })
	return true
}

// done processes the producer's result.
func (p *Publisher) done(l *lane, it *item, r *kgo.Record, err error) {
	p.mu.Lock()
	l.outstanding--
	if l.outstanding == 0 {
		l.flight.End()
		delete(p.sending, l)
	}
	if p.ebb(it, err == nil) && p.probes[it.part] != nil {
		defer p.pumpProbe(it.part)
	}
	if err != nil && producer.Rejected(r) {
		it.state, it.attempts = queued, it.attempts-1
		p.calls.Answered(it.call, calls.ErrUncounted)
		it.call = nil
		p.next(l)
		p.mu.Unlock()
		return
	}
	made := p.calls.Attempt(it.call)
	if errors.Is(err, producer.ErrRecalled) {
		made-- // the last one was canceled
	}
	it.attempts = max(it.attempts, made)
	p.calls.Answered(it.call, p.outcome(l, err))
	it.call = nil
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
	case l.flight.Recalled(), errors.Is(err, producer.ErrRecalled):
		return calls.ErrUncounted
	case failure.Classify(err) == failure.Transient:
		return err
	case failure.Classify(err) == failure.Stopped:
		return calls.ErrUncounted
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
		p.producer.Catalog.Forget(it.topic, errors.Is(err, kerr.UnknownTopicID))
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
	case p.calls.State() == BreakerOpen, errors.Is(err, producer.ErrRecalled):
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
func (p *Publisher) Kafka() (*kgo.Client, *kadm.Client) { return p.producer.Clients() }

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
	return p.calls.State() == BreakerOpen && len(p.sending) == 0 && p.letters.writing == 0
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
	p.producer.Close()
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
	s.Breaker, s.Stalled = p.calls.Status(), p.stalled()
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
