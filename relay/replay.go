package relay

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// replayer publishes dead letters: those that an open breaker made as soon as it
// lets something through, others when their strategy or an operator says so. The
// letters of a chain leave one after the other, in sequence, each claimed before
// and resolved after, and the aggregate's newer events behind them. Letters of
// many chains are claimed and resolved together.
type replayer struct {
	p       *publisher
	log     *slog.Logger
	metrics *metrics
	owner   string
	lookup  lookup // nil for a table without numbers
	limit   *rate.Limiter
	own     *portion // nil is all

	asked   time.Time // when operators' requests were last read
	unread  complaint // that they cannot be
	checked time.Time // when the conditions were last looked at
	state   BreakerState

	// Guarded by the publisher's lock.
	next    []*chain // that go on at once
	health  conditions
	recheck bool // something waits that did not, or the other way round
	noted   map[groupKey]dlq.Hold
}

const (
	// replayBatch is how many letters are claimed together, and replayRun how many
	// of them may be of one chain.
	replayBatch = 32
	replayRun   = 16
)

func newReplayer(p *publisher, find lookup) *replayer {
	limit := rate.Inf
	if p.cfg.ReplayRate > 0 {
		limit = rate.Limit(p.cfg.ReplayRate)
	}
	return &replayer{
		lookup: find,
		p:      p, log: p.log, metrics: p.metrics, owner: p.cfg.shardName() + "@" + self.Host(),
		limit: rate.NewLimiter(limit, max(1, min(p.cfg.ReplayConcurrency, int(p.cfg.ReplayRate)))),
		noted: make(map[groupKey]dlq.Hold),
	}
}

// run replays until ctx ends. What is under way then goes on until the publisher
// is closed.
func (r *replayer) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.p.mu.Lock()
			r.settleNext()
			r.p.mu.Unlock()
			return context.Cause(ctx)
		case <-r.p.woken:
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(r.asked) >= r.p.cfg.ReplayPoll {
			r.asked = now
			r.requests(ctx)
		}
		if r.mustCheck() {
			r.check(ctx)
		}
		timer.Reset(r.start(ctx))
	}
}

// start begins the replay of chains that are due and returns when to look again.
func (r *replayer) start(ctx context.Context) time.Duration {
	p, d := r.p, r.p.letters
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.cfg.ReplayPoll
	state := p.breaker.status.State
	if p.closed || ctx.Err() != nil || state == BreakerOpen {
		r.settleNext()
		return wait
	}
	now := time.Now()
	r.openGates(now, &wait)
	n := p.cfg.ReplayConcurrency
	if state == BreakerHalfOpen {
		n = min(n, p.cfg.BreakerProbes)
	}
	n -= d.underWay
	if r.limit.Limit() != rate.Inf {
		tokens := r.limit.TokensAt(now)
		if tokens < float64(n) {
			wait = min(wait, time.Duration(float64(time.Second)*max(1-tokens, 0.1)/float64(r.limit.Limit()))+time.Millisecond)
			n = int(tokens)
		}
	}
	var works []*replayWork
	letters := 0
	dispatch := func() {
		if len(works) > 0 {
			b := newBatch(r, works)
			p.wg.Go(func() { b.run(ctx) })
		}
		works, letters = nil, 0
	}
	for n > 0 {
		c := r.pick(now, state, &wait)
		if c == nil {
			break
		}
		w := r.take(c, now, state, min(n, replayBatch-letters))
		r.limit.AllowN(now, len(w.refs))
		n -= len(w.refs)
		works = append(works, w)
		if letters += len(w.refs); letters == replayBatch {
			dispatch()
		}
	}
	dispatch()
	return wait
}

// pick returns a chain whose head is to be replayed now, nil if there is none;
// wait becomes the time until there is one, if that is less. Called locked.
func (r *replayer) pick(now time.Time, state BreakerState, wait *time.Duration) *chain {
	d := r.p.letters
	for {
		var c *chain
		goesOn := len(r.next) > 0
		switch {
		case goesOn:
			c = r.next[0]
			r.next = r.next[1:]
			c.draining = false
			if d.chains[c.key] != c {
				continue
			}
			d.touch(c)
			if c.place < 0 {
				r.letPass(c)
				continue
			}
		case d.due.Len() > 0:
			c = d.due[0]
		default:
			return nil
		}
		due, in := c.isDue(now, state)
		if !due {
			*wait = min(*wait, in)
			if goesOn {
				r.letPass(c)
				continue
			}
			return nil
		}
		g := c.head().group
		if g == nil {
			return c
		}
		why, until := r.gate(g, c.head().asked, now)
		if why == "" {
			return c
		}
		heap.Remove(&d.due, c.place)
		g.enter(d, c)
		r.letPass(c)
		if g.reason != why {
			g.reason, g.since, r.recheck = why, now, true
		}
		sooner(wait, now, until)
	}
}

// sooner makes wait the time until at, if that is less.
func sooner(wait *time.Duration, now, at time.Time) {
	if !at.IsZero() {
		*wait = min(*wait, max(at.Sub(now), time.Millisecond))
	}
}

// letPass lets later events of the aggregate become dead letters behind the
// chain, which does not leave now. Called locked.
func (r *replayer) letPass(c *chain) {
	if l, busy := r.p.lanes[c.key]; busy {
		r.p.pump(l)
	}
}

// settleNext gives up chains that were to go on. Called locked.
func (r *replayer) settleNext() {
	next := r.next
	r.next = nil
	for _, c := range next {
		c.draining = false
		if r.p.letters.chains[c.key] == c {
			r.p.letters.touch(c)
			r.letPass(c)
		}
	}
}

// take takes up to most letters from the front of a chain to be replayed. Called locked.
func (r *replayer) take(c *chain, now time.Time, state BreakerState, most int) *replayWork {
	p := r.p
	run := 1
	if g := c.head().group; state == BreakerClosed && (g == nil || g.room(now, p.cfg.ReplayCanary) < 0) {
		run = min(replayRun, most)
	}
	w := &replayWork{chain: c}
	for i, ref := range c.letters {
		if i == run || i > 0 && (ref.group != nil || ref.at == atOperator || ref.at > now.UnixMilli()) {
			break
		}
		if ref.group != nil {
			ref.group.begin(now)
		}
		w.refs = append(w.refs, ref)
	}
	c.draining = true
	p.letters.touch(c)
	p.letters.underWay += len(w.refs)
	return w
}

// gate says why a letter of the group has to wait though it is due, and until
// when if that is known. Called locked.
func (r *replayer) gate(g *letterGroup, asked bool, now time.Time) (why string, until time.Time) {
	p := r.p
	if !asked {
		if open, next := p.cfg.rules.Window(g.rule, now); !open {
			return "an off-peak window, which begins at " + next.UTC().Format(time.RFC3339), next
		}
		if names := p.cfg.rules.Conditions(g.rule); len(names) > 0 {
			if s := p.breaker.status.State; s != BreakerClosed && slices.Contains(names, dlq.ConditionBreaker) {
				return fmt.Sprintf("a condition, %s: the breaker is %s", dlq.ConditionBreaker, s), time.Time{}
			}
			if r.health == nil {
				r.recheck = true
				return "its conditions, which are being looked at", time.Time{}
			}
			if why := r.health.first(names); why != "" {
				return "a condition, " + why, time.Time{}
			}
		}
	}
	if g.room(now, p.cfg.ReplayCanary) != 0 {
		return "", time.Time{}
	}
	if now.Before(g.until) {
		return "the next canary, at " + g.until.UTC().Format(time.RFC3339) + ": the last one died again of: " + g.canaryText, g.until
	}
	return "canaries of equal letters, which are under way", time.Time{}
}

// openGates lets chains go on that wait no longer. Called locked.
func (r *replayer) openGates(now time.Time, wait *time.Duration) {
	d := r.p.letters
	for g := range d.gated {
		for _, from := range []struct {
			chains map[*chain]struct{}
			asked  bool
		}{{g.asked, true}, {g.waiting, false}} {
			if len(from.chains) == 0 {
				continue
			}
			why, until := r.gate(g, from.asked, now)
			if why != "" {
				sooner(wait, now, until)
				if g.reason != why {
					g.reason, g.since, r.recheck = why, now, true
				}
				continue
			}
			g.open(d, from.chains, g.room(now, r.p.cfg.ReplayCanary))
		}
	}
}

// wake makes the replayer look for chains that are due.
func (p *publisher) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// isOut says that the event is known to be in its topic.
func (r *replayer) isOut(id gocql.UUID) bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.p.memory.has(id)
}

// failed notes a replay that did not succeed.
func (r *replayer) failed(ref letterRef, letter *dlq.Letter, end replayEnd) {
	p := r.p
	class, code, text, now := classOf(end.err), codeOf(end.err), end.err.Error(), time.Now()
	choice := p.cfg.rules.Choose(&dlq.Subject{
		ErrorClass: class, ErrorCode: code, EventType: letter.EventType, AggregateType: letter.AggregateType, Table: letter.Table,
		FailedReplays: letter.Replays + 1, FirstFailedAt: letter.FirstFailedAt,
	}, now)
	f := dlq.Failure{
		Class: class, Code: code, Text: text, Chain: chainOf(end.err), Attempts: end.attempts,
		Strategy: choice.Strategy, Rule: choice.Rule, NextAttempt: choice.NextAttempt,
		MaxReplays: choice.MaxReplays, SameError: choice.SameError,
		Final: choice.Strategy == dlq.StrategyManual,
	}
	if f.NextAttempt.IsZero() {
		f.NextAttempt = now // a strategy for which time does not decide
	}
	if f.Final && choice.Rule != dlq.RuleNeedsAPerson {
		f.Waiting = "by the rule " + choice.Rule
	}
	r.metrics.replays.WithLabelValues(strategyLabel(letter.Strategy), "failed").Inc()
	r.log.Warn("replay failed", "event_id", ref.id, "aggregate_id", letter.AggregateID, "class", class, "rule", choice.Rule,
		"strategy", choice.Strategy, "next", choice.NextAttempt, "err", end.err, trace.Attrs(letter.Headers))
	var status dlq.Status
	if !r.insist(ref.id, "note the failure of", func() (err error) {
		status, err = p.letters.store.Fail(p.ctx, ref.id, r.owner, f)
		return err
	}) {
		r.uncount(ref)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := choice.NextAttempt
	if status != dlq.Pending {
		next = time.Time{}
	}
	key := dlq.FailureKey(class, code, text)
	if g := ref.group; g != nil {
		if g.failure != key {
			g.returned()
		} else if g.died(now, next, p.cfg.ReplayCanary, text) {
			r.recheck = true
			r.metrics.canaryStops.Inc()
			r.log.Warn("a canary died of the same error again; the other letters that did wait", "rule", g.rule, "class", class,
				"letters", g.letters, "until", g.until, "err", end.err)
		}
	}
	p.letters.set(ref.id, func(own *letterRef) {
		own.asked, own.group, own.at = false, p.letters.group(choice.Rule, key), atOperator
		if status == dlq.Pending {
			own.at = atOf(choice.Strategy, next)
		}
	})
}

// strategyLabel is a strategy as a label of metrics: one of few.
func strategyLabel(s string) string {
	if slices.Contains(dlq.Strategies, s) {
		return s
	}
	return dlq.StrategyManual
}

// insist does something to a claimed letter until it succeeds. False says that
// the claim was lost, of which the letter says what follows, or that the relay
// stops, and the next start finds the letter claimed.
func (r *replayer) insist(id gocql.UUID, what string, f func() error) bool {
	return r.insistUntil(r.p.ctx, id, what, f)
}

// insistUntil is insist for as long as ctx.
func (r *replayer) insistUntil(ctx context.Context, id gocql.UUID, what string, f func() error) bool {
	for attempt := 1; ; attempt++ {
		err := f()
		switch {
		case err == nil:
			return true
		case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
			r.log.Error("a claimed dead letter was changed by somebody else", "event_id", id, "what", what, "err", err)
			r.adopt(id)
			return false
		case ctx.Err() != nil:
			r.later(id, atOperator)
			return false
		}
		r.log.Warn("cannot "+what+" a dead letter; trying again", "event_id", id, "attempt", attempt, "err", err)
		_ = again.Wait(ctx, r.p.cfg.askAgain(attempt))
	}
}

// adopt does with a letter as the table says now: somebody else changed it.
func (r *replayer) adopt(id gocql.UUID) {
	ctx := r.p.ctx
	for attempt := 1; ; attempt++ {
		l, err := r.p.letters.store.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound):
			r.log.Warn("a dead letter is gone; its chain goes on", "event_id", id)
			r.drop(id)
			return
		case err == nil:
			e := l.Entry()
			r.p.mu.Lock()
			r.follow(&e, false)
			// Not at once: two who take the letter from each other would do nothing else.
			soon := time.Now().Add(time.Second).UnixMilli()
			r.p.letters.set(id, func(ref *letterRef) {
				if ref.at != atOperator {
					ref.at = max(ref.at, soon)
				}
			})
			r.p.mu.Unlock()
			return
		case ctx.Err() != nil:
			r.later(id, atOperator)
			return
		}
		r.log.Warn("cannot read a dead letter; trying again", "event_id", id, "attempt", attempt, "err", err)
		_ = again.Wait(ctx, r.p.cfg.askAgain(attempt))
	}
}

// follow brings what the relay knows of a letter in line with the table; asked
// says that an operator wants it replayed. Called locked.
func (r *replayer) follow(e *dlq.ChainEntry, asked bool) {
	d := r.p.letters
	if !e.Status.Open() {
		r.p.dropLetter(e.EventID, cmp.Or(e.WrittenAt, time.Now().UnixMicro()))
		return
	}
	if !r.own.all() && byItself(e.EventID, e.AggregateID) {
		r.takeIn(e) // the relay of the stream's shard has buried it
	}
	if e.Released {
		r.takeIn(e)
		d.loosen(e.EventID, atOperator)
	}
	d.set(e.EventID, func(ref *letterRef) {
		ref.group = d.group(e.Rule, e.FailureKey)
		ref.asked = asked
		ref.at = notBefore(atOfEntry(e, asked), e.DeliverAt)
		if asked && ref.group != nil {
			ref.group.wanted()
		}
	})
}

// takeIn adds a letter that the relay does not hold: it was restored from the
// archive. What it holds stays as it is. e may be older than what the relay did
// since, and say that a letter is open which this relay settled: then it cannot
// be claimed, and what is in its topic stays in memory. Called locked.
func (r *replayer) takeIn(e *dlq.ChainEntry) {
	d := r.p.letters
	if d.has(e.EventID) {
		return
	}
	// While it was archived its event counted as out. Now it must be published.
	r.p.memory.forgetUnsent(e.EventID)
	d.add(e.EventID, false, letterRef{id: e.EventID, seq: e.Sequence, at: atOperator, group: d.group(e.Rule, e.FailureKey)},
		e.ErrorClass == classBreakerOpen || e.ErrorClass == classAttemptsUsed)
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
		p.memory.addUnsent(id, written)
	}
}

// later sets when a letter is due.
func (r *replayer) later(id gocql.UUID, at int64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.letters.set(id, func(ref *letterRef) { ref.at = at })
}

// replayEnd is what became of a replay.
type replayEnd struct {
	err       error // nil: it is in its topic
	found     bool  // and was before
	topic     string
	partition int32
	offset    int64
	attempts  int
}

// resend publishes the event of a letter in a lane of its own; ended is called
// once, under the lock.
func (p *publisher) resend(e outbox.Event, letter *dlq.Letter, ended func(replayEnd)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLane(e.AggregateID, line{})
	l.ended = ended
	topic, topicErr := p.topic(&e)
	it := &item{
		event: e, written: letter.WrittenAt, topic: topic, topicErr: topicErr,
		by: sourceOf(letter.Metadata[metaCaptured]), buried: int32(min(letter.Attempts, math.MaxInt32)),
	}
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
	e := eventOfLetter(l)
	if !mustReadAgain(l) {
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

// mustReadAgain says that the letter has no event that can be published, only
// what could be read of one.
func mustReadAgain(l *dlq.Letter) bool {
	return l.Edit == nil && (l.ErrorClass == classUndecodable || l.Metadata[metaBadRow] != "")
}

// eventOfLetter is the event as the letter has it, or as it was edited.
func eventOfLetter(l *dlq.Letter) outbox.Event {
	e := outbox.Event{
		ID: l.EventID, IDText: l.Metadata[metaIDText], AggregateID: outbox.IDOf(l.AggregateID), AggregateText: l.Metadata[metaAggregateText],
		Sequence: l.Sequence, AggregateType: l.AggregateType, Type: l.EventType,
		Payload: l.Payload, ContentType: l.ContentType, Headers: l.Headers, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt,
	}
	if l.Edit != nil {
		e.EditOf = e.IDString()
		e.ID, e.IDText, e.Payload, e.ContentType, e.Headers = l.Edit.ID, "", l.Edit.Payload, l.Edit.ContentType, l.Edit.Headers
	}
	return e
}
