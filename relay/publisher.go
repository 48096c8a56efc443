package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// publisher writes events to Kafka, each aggregate's in the order in which they
// were handed on, and each event once however often it is offered.
//
// Events of one aggregate for one topic are sent one behind the other without
// waiting; the idempotent producer keeps their order, and when it gives one back
// it gives back all behind it. An event for another topic waits until those
// before it are acknowledged. What is sent and not acknowledged is bounded by
// the budget; offer waits for room.
//
// It is safe for concurrent use. Events of one aggregate that several callers
// offer at the same time go out by their numbers: who finds one missing claims
// the aggregate until the gap is filled.
type publisher struct {
	cfg     *Config
	log     *slog.Logger
	metrics *metrics
	budget  *budget
	client  *kgo.Client
	topics  *topics
	// remember saves the name of a topic before the first event goes to it; nil
	// if nobody asks for it after a crash.
	remember func(context.Context, string) error
	// fatal is told of an error that ends the relay.
	fatal func(error)
	ctx   context.Context // ends when the publisher is closed
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	lanes      map[gocql.UUID]*lane // aggregates with events under way
	items      map[gocql.UUID]*item // by event id, those not acknowledged
	bytes      int64
	held       map[gocql.UUID]*Hold
	memory     *memory                      // what is out already
	older      *olderRows                   // what a backfill has still to hand on, nil without one
	claims     map[gocql.UUID]chan struct{} // aggregates that one caller fills a gap of
	waiting    map[string][]*lane           // by topic that is being made
	probe      *lane                        // the suspect that is being sent alone
	suspects   []*lane
	topicNames map[topicKey]topicEntry
}

// Hold is an aggregate whose front event cannot be published.
type Hold struct {
	AggregateID gocql.UUID
	EventID     gocql.UUID
	Sequence    int64
	Topic       string
	Since       time.Time
	Attempts    int
	Err         error
}

// newPublisher makes a publisher; it connects when there is something to do.
func newPublisher(cfg *Config, m *metrics, fatal func(error)) (*publisher, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &publisher{
		cfg: cfg, log: cfg.Logger, metrics: m, fatal: fatal, ctx: ctx, stop: stop,
		budget:     newBudget(cfg.MaxInFlightRecords, cfg.MaxInFlightBytes),
		lanes:      make(map[gocql.UUID]*lane),
		items:      make(map[gocql.UUID]*item),
		memory:     newMemory(cfg.MaxRememberedEvents, cfg.MaxAggregates),
		claims:     make(map[gocql.UUID]chan struct{}),
		topicNames: make(map[topicKey]topicEntry),
		held:       make(map[gocql.UUID]*Hold),
		waiting:    make(map[string][]*lane),
		topics:     newTopics(cfg),
	}
	// The relay's own options come last: nothing in cfg.Kafka overrides them.
	opts := append([]kgo.Opt{kgo.ClientID("outbox-relay"), kgo.ProducerLinger(0)}, cfg.Kafka...)
	opts = append(opts,
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(partitioner()),
		// The budget is the bound; the client's own must never be reached.
		kgo.MaxBufferedRecords(cfg.MaxInFlightRecords+1),
		kgo.ProducerBatchMaxBytes(cfg.MaxRecordBytes),
		kgo.ProducerBatchMaxBytesFn(p.topics.maxBytes),
	)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		stop()
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	p.client = client
	p.topics.admin = kadm.NewClient(client)
	return p, nil
}

// pump sends what may be sent of the lane. Called locked.
func (p *publisher) pump(l *lane) {
	for !p.closed && l.failed == nil && !l.paused {
		it := l.firstQueued()
		switch {
		case it == nil:
			return
		case l.outstanding > 0 && (l.suspect || it.topic != l.topic):
			return
		case it.topicErr != nil:
			p.refuse(l, it.topicErr)
			return
		case l.suspect && p.probe != l:
			p.queueProbe(l)
			return
		}
		if wait := time.Until(it.event.DeliverAt); !it.event.DeliverAt.IsZero() && wait > 0 {
			p.resume(l, wait)
			return
		}
		if !p.topics.known(it.topic) {
			l.paused = true
			p.makeTopic(it.topic, l)
			return
		}
		p.send(l, it)
	}
}

// send gives the item to the producer. Called locked: that is what keeps the
// order of the lane. It neither blocks nor calls back before it returns.
func (p *publisher) send(l *lane, it *item) {
	it.state = sent
	it.attempts++
	it.handed = time.Now()
	l.outstanding++
	l.topic = it.topic
	headers := outbox.AppendHeaders[kgo.RecordHeader](nil, &it.event, p.cfg.Source)
	if it.scanned {
		headers = append(headers, kgo.RecordHeader{Key: outbox.HeaderBackfill, Value: []byte("1")})
	}
	p.client.TryProduce(inLane(l), &kgo.Record{
		Topic:   it.topic,
		Key:     it.event.Key(),
		Value:   it.event.Payload,
		Headers: headers,
	}, func(_ *kgo.Record, err error) { p.done(l, it, err) })
}

// done takes the producer's answer.
func (p *publisher) done(l *lane, it *item, err error) {
	p.mu.Lock()
	l.outstanding--
	if l.outstanding == 0 {
		l.partition.Store(-1)
	}
	if err != nil {
		p.back(l, it, err)
		p.mu.Unlock()
		return
	}
	it.state = acked
	l.pop()
	// Settled before it counts as done, and under the lock: who waits for the
	// last event saves the checkpoints next.
	for _, f := range it.settled {
		f()
	}
	delete(p.items, it.event.ID)
	if it.scanned {
		// It will not be offered again.
	} else if it.shown {
		p.memory.addShown(it.event.ID, it.written)
	} else {
		p.memory.addFresh(it.event.ID, it.written)
	}
	p.bytes -= it.bytes
	if l.suspect {
		l.suspect = false
		p.endProbe(l)
		p.release(l)
	}
	p.next(l)
	p.rest(l)
	p.mu.Unlock()

	p.budget.give(it.bytes)
	now := time.Now()
	p.metrics.published.WithLabelValues(it.topic).Inc()
	p.metrics.publishSeconds.Observe(now.Sub(it.handed).Seconds())
	if it.written > 0 {
		p.metrics.commitSeconds.Observe(float64(now.UnixMicro()-it.written) / 1e6)
	}
	p.log.Debug("event published", "event_id", it.event.ID, "aggregate_id", it.event.AggregateID, "topic", it.topic, "attempt", it.attempts)
}

// back takes an item that was not written. Called locked.
func (p *publisher) back(l *lane, it *item, err error) {
	it.state = queued
	class := Classify(err)
	if class != Stopped {
		p.metrics.failures.WithLabelValues(class.String()).Inc()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
		p.topics.forget(it.topic)
	}
	// Of several that come back together the most serious decides.
	if l.failed == nil || Classify(l.failed) < class {
		l.failed = err
	}
	p.next(l)
}

// next goes on with the lane, once everything it sent is back. Called locked.
func (p *publisher) next(l *lane) {
	if l.failed == nil {
		p.pump(l)
		return
	}
	if l.outstanding > 0 {
		return
	}
	err := l.failed
	front := l.items[0]
	switch Classify(err) {
	case Stopped:
		// The lane stays as it is; the checkpoint does not pass its events.
	case Fatal:
		p.fatal(fmt.Errorf("publish event %s to topic %s: %w", front.event.ID, front.topic, err))
	case Permanent:
		p.refuse(l, err)
	case Transient:
		p.endProbe(l)
		wait := backoff(p.cfg.RetryMin, p.cfg.RetryMax, front.attempts)
		p.log.Warn("event not published; it will be sent again", "event_id", front.event.ID, "aggregate_id", l.id,
			"topic", front.topic, "attempt", front.attempts, "wait", wait, "err", err)
		p.resume(l, wait)
	}
}

// refuse deals with an error that says the front item cannot be sent. The
// first time, unless the error is the relay's own, the item may have been
// failed together with another one of its partition, so it is sent once more,
// alone. Called locked, with nothing outstanding.
func (p *publisher) refuse(l *lane, err error) {
	front := l.items[0]
	if !l.suspect && front.topicErr == nil {
		l.suspect, l.failed = true, nil
		p.pump(l)
		return
	}
	l.suspect = true
	p.endProbe(l)
	if l.hold == nil {
		l.hold = &Hold{
			AggregateID: l.id, EventID: front.event.ID, Sequence: front.event.Sequence, Topic: front.topic, Since: time.Now(),
		}
		p.held[l.id] = l.hold
		p.log.Error("event cannot be published; its aggregate is held, nothing is skipped",
			"event_id", front.event.ID, "aggregate_id", l.id, "seq", front.event.Sequence, "topic", front.topic, "err", err)
	}
	l.hold.Err = err
	l.hold.Attempts = front.attempts
	p.resume(l, p.cfg.HoldRetry)
}

// release ends a hold. Called locked.
func (p *publisher) release(l *lane) {
	if l.hold == nil {
		return
	}
	p.log.Info("aggregate is no longer held", "aggregate_id", l.id, "held_for", time.Since(l.hold.Since))
	delete(p.held, l.id)
	l.hold = nil
}

// resume starts the lane again after wait. Called locked.
func (p *publisher) resume(l *lane, wait time.Duration) {
	l.paused = true
	time.AfterFunc(wait, func() { p.restart(l) })
}

func (p *publisher) restart(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.paused, l.failed = false, nil
	p.pump(l)
}

// queueProbe lets the suspect be sent when no other suspect is. Called locked.
func (p *publisher) queueProbe(l *lane) {
	if p.probe != nil {
		l.paused = true
		p.suspects = append(p.suspects, l)
		return
	}
	p.probe = l
	p.pump(l)
}

// endProbe lets the next suspect be sent, if l was the one. Called locked.
func (p *publisher) endProbe(l *lane) {
	if p.probe != l {
		return
	}
	p.probe = nil
	if len(p.suspects) == 0 {
		return
	}
	next := p.suspects[0]
	p.suspects = p.suspects[1:]
	p.probe = next
	next.paused = false
	p.pump(next)
}

// makeTopic makes the topic and then starts the lanes that wait for it. Called locked.
func (p *publisher) makeTopic(topic string, l *lane) {
	waiting, running := p.waiting[topic]
	p.waiting[topic] = append(waiting, l)
	if running {
		return
	}
	p.wg.Go(func() {
		err := p.ensureTopic(p.ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		lanes := p.waiting[topic]
		delete(p.waiting, topic)
		for _, l := range lanes {
			l.paused = false
			switch {
			case err == nil:
				p.pump(l)
			case Classify(err) == Permanent:
				l.suspect = true
				p.refuse(l, err)
			}
		}
	})
}

// ensureTopic makes the topic, however long the broker is away. The error is
// Permanent, or Stopped; of a Fatal one the relay was told.
func (p *publisher) ensureTopic(ctx context.Context, topic string) error {
	for attempt := 1; ; attempt++ {
		var err error
		if p.topics.wasDeleted(topic) {
			// The client still has the id of the topic that was deleted.
			p.client.PurgeTopicsFromProducing(topic)
		}
		if p.remember != nil {
			err = p.remember(ctx, topic)
		}
		if err == nil {
			err = p.topics.ensure(ctx, topic)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ErrStopping, err)
		}
		switch Classify(err) {
		case Permanent, Stopped:
			return err
		case Fatal:
			p.fatal(err)
			return err
		}
		wait := backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt)
		p.log.Warn("topic is not ready; trying again", "topic", topic, "attempt", attempt, "wait", wait, "err", err)
		if err := sleep(ctx, wait); err != nil {
			return errors.Join(ErrStopping, err)
		}
	}
}

// drain waits until all events that can be published are, or ctx ends, and
// says how many are left.
func (p *publisher) drain(ctx context.Context) (left int) {
	for {
		left, blocked := p.remaining()
		if left == blocked || sleep(ctx, 10*time.Millisecond) != nil {
			return left
		}
	}
}

func (p *publisher) remaining() (open, blocked int) {
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

// close ends the publisher. What is not acknowledged by now counts as not
// published; the broker may have it nevertheless.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
	p.client.Close()
}

type publisherState struct {
	open  int
	bytes int64
	held  int
	// What is remembered: events that the sweep has still to show, events that
	// it has shown, aggregates.
	fresh, shown, aggregates int
	full                     bool
}

// state is zero for a publisher that was not made yet.
func (p *publisher) state() publisherState {
	if p == nil {
		return publisherState{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := publisherState{open: len(p.items), bytes: p.bytes, held: len(p.held), full: p.memory.full()}
	s.fresh, s.shown, s.aggregates = p.memory.size()
	return s
}

// holds returns the aggregates that are held.
func (p *publisher) holds() []Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Hold, 0, len(p.held))
	for _, h := range p.held {
		out = append(out, *h)
	}
	return out
}
