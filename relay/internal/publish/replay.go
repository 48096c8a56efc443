package publish

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
)

// Replayer publishes dead letters. Those written because the breaker was open are due
// once the breaker admits calls, others by their strategy or on an operator's request.
// The dead letters of a chain are published one after the other, in sequence, before
// the aggregate's newer events. Each is claimed before it is published and resolved
// afterwards. Dead letters of many chains are claimed and resolved together.
type Replayer struct {
	p       *Publisher
	log     *slog.Logger
	metrics *Metrics
	owner   string
	lookup  cdclog.Lookup // nil for a table without numbers
	earlier earlier.Finder
	limit   *rate.Limiter
	Own     *cdclog.Portion // nil means all

	asked   time.Time  // when operators' requests were last read
	unread  failureLog // they cannot be read
	checked time.Time  // when the conditions were last checked
	state   BreakerState
	noted   map[chains.GroupKey]dlq.Hold

	reopened reopenedDeadLetters
}

// replays is what decides, with the chains, which dead letters are replayed now.
type replays struct {
	next    []*chains.Chain // continue immediately
	health  conditions
	recheck bool // the set of waiting groups or a reason changed
}

const (
	// replayBatch is the number of dead letters claimed together, and replayRun the
	// maximum per chain.
	replayBatch = 32
	replayRun   = 16
	// replayLookups is the number of concurrent searches for events before chains.
	replayLookups = 8
)

// NewReplayer returns a replayer of the dead letters of p; find reads events of the outbox
// table by key.
func NewReplayer(p *Publisher, find cdclog.Lookup) *Replayer {
	limit := rate.Inf
	if p.cfg.ReplayRate > 0 {
		limit = rate.Limit(p.cfg.ReplayRate)
	}
	return &Replayer{
		lookup: find, earlier: earlier.Finder{Evidence: p, Lookup: find.AtMost(replayLookups)},
		p: p, log: p.log, metrics: p.Metrics, owner: p.cfg.ShardName + "@" + self.Host(),
		limit: rate.NewLimiter(limit, max(1, min(p.cfg.ReplayConcurrency, int(p.cfg.ReplayRate)))),
		noted: make(map[chains.GroupKey]dlq.Hold),
	}
}

// Run replays until ctx ends or the publisher is closed, and returns the cause. Replays in progress
// then continue until the publisher is closed.
func (r *Replayer) Run(ctx context.Context) error {
	p, open := r.p, false
	p.ask(func(c *cell) { // Close waits for Run, which may otherwise start goroutines after it
		if open = !c.closed; open {
			p.wg.Add(1)
		}
	})
	if !open {
		return failure.ErrStopping
	}
	defer p.wg.Done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.ctx, func() { stop(failure.ErrStopping) })()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.ask((*cell).settleNext)
			return context.Cause(ctx)
		case <-p.woken:
		case <-timer.C:
		}
		if now := time.Now(); now.Sub(r.asked) >= p.cfg.ReplayPoll {
			r.asked = now
			r.requests(ctx)
		}
		if r.mustCheck() {
			r.check(ctx)
		}
		timer.Reset(r.start(ctx))
	}
}

// start begins the replay of due chains and returns the time until the next check.
func (r *Replayer) start(ctx context.Context) time.Duration {
	p, tokens := r.p, math.Inf(1)
	if r.limit.Limit() != rate.Inf {
		tokens = r.limit.TokensAt(time.Now())
	}
	var d dueReplays
	p.ask(func(c *cell) {
		if ctx.Err() != nil {
			c.settleNext()
			d.wait = c.cfg.ReplayPoll
			return
		}
		d = c.beginReplays(tokens, float64(r.limit.Limit()))
	})
	if d.dead > 0 {
		r.limit.AllowN(d.at, d.dead)
	}
	for _, works := range d.batches {
		b := newBatch(r, works)
		p.wg.Go(func() { b.run(ctx) })
	}
	for _, head := range d.lookUps {
		p.wg.Go(func() { r.lookUp(ctx, head) })
	}
	return d.wait
}

// dueReplays contains the work of the replayer now.
type dueReplays struct {
	at      time.Time // by the clock of dead letters
	batches [][]*replayWork
	dead    int // dead letters in them
	// lookUps are the dead letters before which events have to be looked up.
	lookUps []headLookUp
	wait    time.Duration // until the next check
}

// headLookUp is the head of a chain before which events have to be looked up. The aggregate is claimed
// until release is called.
type headLookUp struct {
	chains.Ref
	aggregate gocql.UUID
	passed    int64
	again     int64 // when it is due if the look-up fails
}

// beginReplays takes the dead letters that are to be replayed now. tokens is how many the rate of
// perSecond permits.
func (c *cell) beginReplays(tokens, perSecond float64) (d dueReplays) {
	d.wait = c.cfg.ReplayPoll
	state := c.calls.State()
	if c.closed || state == BreakerOpen {
		c.settleNext()
		return d
	}
	now := c.deadLetterTime()
	d.at = now
	c.openGates(now, &d.wait)
	n := c.cfg.ReplayConcurrency - c.dead.replays
	if state == BreakerHalfOpen { // records that the producer has are no probes any more
		probes := c.cfg.BreakerProbes - c.dead.replays
		for l := range c.replaying {
			probes += l.outstanding
		}
		n = min(n, probes)
	}
	if tokens < float64(n) {
		d.wait = min(d.wait, time.Duration(float64(time.Second)*max(1-tokens, 0.1)/perSecond)+time.Millisecond)
		n = int(tokens)
	}
	var works []*replayWork
	deadLetters := 0
	for n > 0 {
		chain := c.pickReplay(now, &d)
		if chain == nil {
			break
		}
		w := c.takeReplay(chain, now, state, min(n, replayBatch-deadLetters))
		d.dead += len(w.refs)
		n -= len(w.refs)
		works = append(works, w)
		if deadLetters += len(w.refs); deadLetters == replayBatch {
			d.batches = append(d.batches, works)
			works, deadLetters = nil, 0
		}
	}
	if len(works) > 0 {
		d.batches = append(d.batches, works)
	}
	return d
}

// pickReplay returns a chain whose head is to be replayed now, nil if there is none. It
// lowers d.wait to the time until the next chain is due.
func (c *cell) pickReplay(now time.Time, d *dueReplays) *chains.Chain {
	for {
		var chain *chains.Chain
		continues := len(c.replays.next) > 0
		switch {
		case continues:
			chain = c.replays.next[0]
			c.replays.next = c.replays.next[1:]
			chain.Draining = false
			if c.dead.Of(chain.Key) != chain {
				continue
			}
			c.dead.Touch(chain)
			if !chain.Queued() {
				c.resumeLane(chain)
				continue
			}
		default:
			if chain = c.dead.Front(now); chain == nil {
				return nil
			}
		}
		due, in := chain.IsDue(now)
		if !due {
			d.wait = min(d.wait, in)
			if continues {
				c.resumeLane(chain)
				continue
			}
			return nil
		}
		if c.comesFirst(chain) {
			// Not yet: retry in a second.
			chain.Head().At = now.Add(time.Second).UnixMilli()
			c.dead.Touch(chain)
			c.resumeLane(chain)
			continue
		}
		if chain.Strict && chain.Head().After > 0 {
			d.lookUps = append(d.lookUps, c.beginLookUp(chain, now))
			continue
		}
		g := chain.Head().Group
		if g == nil {
			return chain
		}
		why, until := c.gateOf(g, chain.Head().Asked, now)
		if why == "" {
			return chain
		}
		c.dead.Hold(chain, g)
		c.resumeLane(chain)
		if g.Reason != why {
			g.Reason, g.Since, c.replays.recheck = why, now, true
		}
		sooner(&d.wait, now, until)
	}
}

// comesFirst reports whether events before the events of the chain may still have to be
// published: they are in the producer or wait in the lane, or the sweep or a scan may still read
// them.
func (c *cell) comesFirst(chain *chains.Chain) bool {
	if !chain.Strict {
		return false
	}
	l := c.lanes[chain.Key]
	_, claimed := c.claims[chain.Key] // a reader searches for earlier events
	after := chain.Head().After
	unread := after > c.dead.passed || after > 0 && c.older != nil && c.older.Behind(chain.Aggregate) // by the sweep, or by a scan
	first, postponed := c.postponed[chain.Key]
	return l != nil && l.outstanding > 0 || claimed || unread || postponed && chain.Head().Seq >= first || chain.Head().Seq > c.firstWaiting(l)
}

// beginLookUp claims the aggregate of a chain, so that the events before its head can be looked up
// that are in no topic, and have no dead letter: an earlier process may have had them with the
// producer, and no reader offers them again if their rows were visible late. Then the chain is due
// again.
func (c *cell) beginLookUp(chain *chains.Chain, now time.Time) headLookUp {
	h := headLookUp{Ref: *chain.Head(), aggregate: chain.Key, passed: c.dead.passed, again: now.Add(time.Second).UnixMilli()}
	chain.Head().At = h.again
	c.dead.Touch(chain)
	c.resumeLane(chain)
	c.claims[chain.Key] = make(chan struct{})
	return h
}

// lookUp publishes the events before the head of a chain.
func (r *Replayer) lookUp(ctx context.Context, head headLookUp) {
	p := r.p
	found, err := r.findEarlier(ctx, head.ID, head.passed)
	p.ask(func(c *cell) { c.releaseClaim(head.aggregate) })
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("failed to look up the events before a dead letter, retrying", "event_id", head.ID, "aggregate_id", head.aggregate, "err", err)
		}
		return
	}
	if !found {
		r.adopt(head.ID)
	}
	p.ask(func(c *cell) {
		if ref, in := c.dead.Ref(head.ID); ref != nil && found {
			if in.ClearAfter(head.ID); ref.At == head.again { // otherwise somebody has changed it
				ref.At = head.At
			}
			c.dead.Touch(in)
		}
		c.do(effect{do: effReplay})
	})
}

// findEarlier reports whether the dead letter exists, and the events before it are published.
func (r *Replayer) findEarlier(ctx context.Context, deadLetter gocql.UUID, passed int64) (found bool, err error) {
	l, err := r.p.DeadLetter(ctx, deadLetter)
	if l == nil {
		return false, err
	}
	of := storedEvent(l)
	return true, r.earlier.Unpublished(ctx, &of, l.Sequence, passed, func(f cdclog.StoredEvent) error {
		return r.p.SubmitMissing(ctx, f, false, Settlement{})
	})
}

// firstWaiting returns the lowest number of the events that wait in a lane, and a number
// above all if there are none.
func (c *cell) firstWaiting(l *lane) (first int64) {
	first = math.MaxInt64
	if l == nil {
		return first
	}
	for _, it := range l.items {
		if it.event.Sequence > 0 && it.state != acked && !c.cfg.relaxed(it.event.Type) {
			first = min(first, it.event.Sequence)
		}
	}
	return first
}

// sooner lowers wait to the time until at.
func sooner(wait *time.Duration, now, at time.Time) {
	if !at.IsZero() {
		*wait = min(*wait, max(at.Sub(now), time.Millisecond))
	}
}

// resumeLane lets later events of the aggregate be added to the chain as dead
// letters, because the chain is not replayed now.
func (c *cell) resumeLane(chain *chains.Chain) {
	if l, busy := c.lanes[chain.Key]; busy {
		c.pump(l)
	}
}

// settleNext releases the chains that were to continue.
func (c *cell) settleNext() {
	next := c.replays.next
	c.replays.next = nil
	for _, chain := range next {
		chain.Draining = false
		if c.dead.Of(chain.Key) == chain {
			c.dead.Touch(chain)
			c.resumeLane(chain)
		}
	}
}

// takeReplay selects up to most dead letters from the front of a chain for replay.
func (c *cell) takeReplay(chain *chains.Chain, now time.Time, state BreakerState, most int) *replayWork {
	run := 1
	if g := chain.Head().Group; state == BreakerClosed && (g == nil || g.Room(now, c.cfg.ReplayCanary) < 0) {
		run = min(replayRun, most)
	}
	w := &replayWork{chain: chain}
	first := c.firstWaiting(c.lanes[chain.Key])
	for i, ref := range chain.DeadLetters {
		if i == run || i > 0 && (ref.Group != nil || ref.At == chains.AtOperator || ref.At > now.UnixMilli() || chain.Strict && (ref.Seq > first || ref.After > 0)) {
			break
		}
		if ref.Group != nil {
			ref.Group.Begin(now)
		}
		w.refs = append(w.refs, ref)
	}
	chain.Draining = true
	c.dead.Touch(chain)
	c.dead.replays += len(w.refs)
	return w
}

// isOut reports whether the event is known to be in its topic.
func (r *Replayer) isOut(id gocql.UUID) bool {
	_, in := r.p.Indexed(id)
	return in
}
