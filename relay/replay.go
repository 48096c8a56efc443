package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// replayer publishes dead letters: those that an open breaker made as soon as it
// lets something through, others when their time has come or an operator says
// so. The letters of a chain leave one after the other, in sequence, each
// claimed before and resolved after, and the aggregate's newer events behind
// them.
type replayer struct {
	p       *publisher
	log     *slog.Logger
	metrics *metrics
	owner   string
	lookup  lookup // nil for a table without numbers

	queue   []gocql.UUID // chains that are due
	running chan struct{}
	asked   time.Time // when operators' requests were last read
}

func newReplayer(p *publisher, find lookup) *replayer {
	return &replayer{
		lookup: find,
		p:      p, log: p.log, metrics: p.metrics, owner: p.cfg.Name + "@" + hostname(),
		running: make(chan struct{}, p.cfg.ReplayConcurrency),
	}
}

// run replays until ctx ends.
func (r *replayer) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.p.woken:
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(r.asked) >= r.p.cfg.ReplayPoll {
			r.asked = now
			r.requests(ctx)
		}
		timer.Reset(r.start(ctx))
	}
}

// start begins the replay of chains that are due and returns when to look again.
func (r *replayer) start(ctx context.Context) time.Duration {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.cfg.ReplayPoll
	state := p.breaker.status.State
	if p.closed || state == BreakerOpen {
		return wait
	}
	if len(r.queue) == 0 {
		now := time.Now()
		for key, c := range p.letters.chains {
			if c.draining {
				continue
			}
			if due, in := c.due(now, state); due {
				r.queue = append(r.queue, key)
			} else if in > 0 {
				wait = min(wait, in)
			}
		}
	}
	for len(r.queue) > 0 {
		if state == BreakerHalfOpen && len(r.running) >= p.cfg.BreakerProbes {
			return wait
		}
		key := r.queue[0]
		c, ok := p.letters.chains[key]
		if !ok || c.draining {
			r.queue = r.queue[1:]
			continue
		}
		select {
		case r.running <- struct{}{}:
		default:
			return wait // one that ends wakes us
		}
		r.queue = r.queue[1:]
		c.draining = true
		p.wg.Go(func() {
			r.drain(ctx, c)
			<-r.running
			p.wake()
		})
	}
	return wait
}

// wake makes the replayer look for chains that are due.
func (p *publisher) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// drain replays a chain as far as it goes. One that begins in its place, once
// it is empty, is another, which somebody else may have begun to drain.
func (r *replayer) drain(ctx context.Context, c *chain) {
	p := r.p
	for {
		p.mu.Lock()
		ok := p.letters.chains[c.key] == c
		if ok && !p.closed && ctx.Err() == nil {
			if due, _ := c.due(time.Now(), p.breaker.status.State); due {
				head := *c.head()
				p.mu.Unlock()
				r.one(ctx, head)
				continue
			}
		}
		if ok {
			c.draining = false
		}
		if l, busy := p.lanes[c.key]; busy {
			p.pump(l)
		}
		p.mu.Unlock()
		return
	}
}

// one replays one letter. Afterwards it is gone from its chain, or not due.
func (r *replayer) one(ctx context.Context, ref letterRef) {
	p := r.p
	letter, err := p.letters.store.Claim(ctx, ref.id, r.owner, p.cfg.ClaimFor)
	if refused, ok := errors.AsType[*dlq.RefusedError](err); ok {
		r.moved(ref, refused)
		return
	}
	switch {
	case errors.Is(err, dlq.ErrNotFound):
		r.log.Warn("a dead letter is gone; its chain goes on", "event_id", ref.id)
		r.drop(ref.id)
		return
	case err != nil:
		if ctx.Err() == nil {
			r.log.Warn("cannot claim a dead letter; trying again", "event_id", ref.id, "err", err)
		}
		r.later(ref.id, time.Now().Add(time.Second).UnixMilli())
		return
	}
	if r.isOut(ref.id) {
		// Published by a relay that could not say so before somebody took the claim off.
		if r.insist(ctx, ref.id, "resolve", func() error {
			return p.letters.store.Resolve(ctx, ref.id, r.owner, dlq.Outcome{Kind: dlq.OutcomeFound, Note: "found in its topic before a replay"})
		}) {
			r.metrics.replays.WithLabelValues("found").Inc()
			r.drop(ref.id)
		}
		return
	}
	end := r.publish(ctx, &letter)
	switch {
	case end.err == nil:
		outcome := dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: end.topic, Partition: end.partition, Offset: end.offset}
		if !r.insist(ctx, ref.id, "resolve", func() error { return p.letters.store.Resolve(ctx, ref.id, r.owner, outcome) }) {
			return
		}
		r.metrics.replays.WithLabelValues("published").Inc()
		r.drop(ref.id)
	case errors.Is(end.err, errStalled), errors.Is(end.err, errNotRead):
		r.metrics.replays.WithLabelValues("called_off").Inc()
		r.insist(ctx, ref.id, "give back", func() error { return p.letters.store.Unclaim(ctx, ref.id, r.owner, end.err.Error()) })
		r.later(ref.id, time.Now().Add(p.cfg.BreakerOpen).UnixMilli())
	case errors.Is(end.err, errBreakerOpen):
		r.metrics.replays.WithLabelValues("called_off").Inc()
		r.insist(ctx, ref.id, "give back", func() error { return p.letters.store.Unclaim(ctx, ref.id, r.owner, end.err.Error()) })
		r.later(ref.id, atBreaker)
	case Classify(end.err) == Stopped || ctx.Err() != nil:
		// The next start finds it claimed, and whether it is in its topic.
		r.later(ref.id, atOperator)
	default:
		r.failed(ctx, ref, &letter, end)
	}
}

// isOut says that the event is known to be in its topic.
func (r *replayer) isOut(id gocql.UUID) bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.p.memory.has(id)
}

// failed notes a replay that did not succeed.
func (r *replayer) failed(ctx context.Context, ref letterRef, letter *dlq.Letter, end replayEnd) {
	p := r.p
	class := classOf(end.err)
	f := dlq.Failure{
		Class: class, Code: codeOf(end.err), Text: end.err.Error(), Chain: chainOf(end.err), Attempts: end.attempts,
		Strategy: strategyOf(class), Final: strategyOf(class) == strategyManual,
		NextAttempt: nextReplay(strategyOf(class), min(letter.Replays+1, len(dlq.DefaultDelays)-1), time.Now()),
	}
	r.metrics.replays.WithLabelValues("failed").Inc()
	r.log.Warn("replay failed", "event_id", ref.id, "aggregate_id", letter.AggregateID, "class", class, "next", f.NextAttempt, "err", end.err)
	status := dlq.Manual
	if !r.insist(ctx, ref.id, "note the failure of", func() (err error) {
		status, err = p.letters.store.Fail(ctx, ref.id, r.owner, f)
		return err
	}) {
		return
	}
	if status != dlq.Pending {
		f.NextAttempt = time.Time{}
	}
	r.later(ref.id, atOf(f.Strategy, f.NextAttempt))
}

// moved answers to a letter that is not where it was: an operator or another
// worker was there.
func (r *replayer) moved(ref letterRef, e *dlq.RefusedError) {
	switch {
	case !e.Status.Open():
		r.drop(ref.id)
	case e.Status == dlq.Processing:
		r.later(ref.id, e.ClaimedUntil.UnixMilli())
	default:
		r.later(ref.id, atOperator)
	}
}

// insist does something to a claimed letter until it succeeds. False says that
// the relay stops; a claim that was lost counts as done.
func (r *replayer) insist(ctx context.Context, id gocql.UUID, what string, f func() error) bool {
	for attempt := 1; ; attempt++ {
		err := f()
		switch {
		case err == nil:
			return true
		case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
			r.log.Error("a claimed dead letter was changed by somebody else", "event_id", id, "what", what, "err", err)
			return true
		case ctx.Err() != nil:
			r.later(id, atOperator)
			return false
		}
		r.log.Warn("cannot "+what+" a dead letter; trying again", "event_id", id, "attempt", attempt, "err", err)
		_ = sleep(ctx, r.p.cfg.askAgain(attempt))
	}
}

// drop forgets a letter that is settled.
func (r *replayer) drop(id gocql.UUID) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.dropLetter(id, time.Now().UnixMicro())
}

// dropLetter forgets a letter that is settled. Its event counts as out, whether
// it was published or not: its row in the log may be still to come. Called locked.
func (p *publisher) dropLetter(id gocql.UUID, written int64) {
	p.letters.remove(id)
	if !p.memory.has(id) {
		p.memory.addFresh(id, written)
	}
}

// later sets when a letter is due.
func (r *replayer) later(id gocql.UUID, at int64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if ref := r.p.letters.ref(id); ref != nil {
		ref.at = at
	}
}

// replayEnd is what became of a replay.
type replayEnd struct {
	err       error // nil: it is in its topic
	topic     string
	partition int32
	offset    int64
	attempts  int
}

// publish sends a letter and waits for the end of it, keeping the claim.
func (r *replayer) publish(ctx context.Context, letter *dlq.Letter) replayEnd {
	p := r.p
	e, err := r.eventOf(ctx, letter)
	if err != nil {
		return replayEnd{err: err}
	}
	ended := make(chan replayEnd, 1)
	p.resend(e, letter.WrittenAt, func(end replayEnd) { ended <- end })
	keep := time.NewTicker(p.cfg.ClaimFor / 3)
	defer keep.Stop()
	for {
		select {
		case end := <-ended:
			return end
		case <-ctx.Done():
			return replayEnd{err: context.Cause(ctx)}
		case <-keep.C:
			if err := p.letters.store.Extend(ctx, letter.EventID, r.owner, p.cfg.ClaimFor); err != nil && ctx.Err() == nil {
				r.log.Warn("cannot extend the claim of a dead letter", "event_id", letter.EventID, "err", err)
			}
		}
	}
}

// resend publishes an event in a lane of its own; ended is called once, under
// the lock.
func (p *publisher) resend(e outbox.Event, written int64, ended func(replayEnd)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLane(e.AggregateID, line{})
	l.ended = ended
	topic, topicErr := p.topic(&e)
	it := &item{event: e, written: written, topic: topic, topicErr: topicErr}
	l.items = append(l.items, it)
	p.replaying[l] = struct{}{}
	p.pump(l)
}

// endReplay ends a replay lane. Called locked.
func (p *publisher) endReplay(l *lane, end replayEnd) {
	if _, ok := p.replaying[l]; !ok {
		return
	}
	delete(p.replaying, l)
	l.paused = true
	l.items[0].state = acked // whoever still has the lane on a list sends nothing of it
	end.attempts = l.items[0].attempts
	l.ended(end)
	p.endProbe(l)
}

// replayed ends a replay that is acknowledged. Called locked.
func (p *publisher) replayed(l *lane, it *item, r *kgo.Record) {
	p.remembered(it)
	p.endReplay(l, replayEnd{topic: r.Topic, partition: r.Partition, offset: r.Offset})
}

// errNotRead calls off the replay of a row that could not be read again, because
// the database did not answer.
var errNotRead = errors.New("its row was not read again")

// eventOf is the event of a dead letter. One whose row could not be read is
// read again: somebody may have mended it.
func (r *replayer) eventOf(ctx context.Context, l *dlq.Letter) (outbox.Event, error) {
	e := outbox.Event{
		ID: l.EventID, IDText: l.Metadata[metaIDText], AggregateID: outbox.IDOf(l.AggregateID), AggregateText: l.Metadata[metaAggregateText],
		Sequence: l.Sequence, AggregateType: l.AggregateType, Type: l.EventType,
		Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt,
	}
	if l.Edit != nil {
		e.EditOf = e.IDString()
		e.ID, e.IDText, e.Payload, e.ContentType, e.Headers = l.Edit.ID, "", l.Edit.Payload, l.Edit.ContentType, l.Edit.Headers
		return e, nil
	}
	if l.ErrorClass != classUndecodable && l.Metadata[metaBadRow] == "" {
		return e, nil
	}
	bad := &outbox.RowError{Column: "of this dead letter", Problem: "cannot be read: " + l.ErrorText}
	if r.lookup == nil || e.Sequence < 1 {
		return e, bad
	}
	rows, err := r.lookup(ctx, &e, e.Sequence, e.Sequence+1)
	switch {
	case err != nil: // of the row nothing is known, so the letter stays what it is
		return e, fmt.Errorf("%w: %w", errNotRead, err)
	case len(rows) == 0:
		return e, bad
	case rows[0].bad != nil:
		return e, rows[0].bad
	}
	mended := rows[0].Event
	mended.ID, mended.IDText = e.ID, e.IDText // it stays this letter's event
	return mended, nil
}
