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

	// Guarded by Publisher.mu.
	next    []*chains.Chain // continue immediately
	health  conditions
	recheck bool // the set of waiting groups or a reason changed
	noted   map[chains.GroupKey]dlq.Hold
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

// Run replays until ctx ends. Replays in progress then continue until the publisher is
// closed.
func (r *Replayer) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.p.mu.Lock()
			r.settleNextLocked()
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

// start begins the replay of due chains and returns the time until the next check.
func (r *Replayer) start(ctx context.Context) time.Duration {
	p, d := r.p, r.p.mu.deadLetters
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.cfg.ReplayPoll
	state := p.calls.State()
	if p.mu.closed || ctx.Err() != nil || state == BreakerOpen {
		r.settleNextLocked()
		return wait
	}
	now := p.now()
	r.openGatesLocked(now, &wait)
	n := p.cfg.ReplayConcurrency - d.replays
	if state == BreakerHalfOpen { // those that the producer has are no probes any more
		n = min(n, p.cfg.BreakerProbes-d.replays+p.replaysSentLocked())
	}
	if r.limit.Limit() != rate.Inf {
		tokens := r.limit.TokensAt(time.Now())
		if tokens < float64(n) {
			wait = min(wait, time.Duration(float64(time.Second)*max(1-tokens, 0.1)/float64(r.limit.Limit()))+time.Millisecond)
			n = int(tokens)
		}
	}
	var works []*replayWork
	deadLetters := 0
	dispatch := func() {
		if len(works) > 0 {
			b := newBatch(r, works)
			p.wg.Go(func() { b.run(ctx) })
		}
		works, deadLetters = nil, 0
	}
	for n > 0 {
		c := r.pickLocked(ctx, now, state, &wait)
		if c == nil {
			break
		}
		w := r.takeLocked(c, now, state, min(n, replayBatch-deadLetters))
		r.limit.AllowN(now, len(w.refs))
		n -= len(w.refs)
		works = append(works, w)
		if deadLetters += len(w.refs); deadLetters == replayBatch {
			dispatch()
		}
	}
	dispatch()
	return wait
}

// replaysSentLocked returns the number of replays whose record the producer has.
func (p *Publisher) replaysSentLocked() (n int) {
	for l := range p.mu.replaying {
		n += l.outstanding
	}
	return n
}

// pickLocked returns a chain whose head is to be replayed now, nil if there is none. It
// lowers wait to the time until the next chain is due.
func (r *Replayer) pickLocked(ctx context.Context, now time.Time, state BreakerState, wait *time.Duration) *chains.Chain {
	d := r.p.mu.deadLetters
	for {
		var c *chains.Chain
		continues := len(r.next) > 0
		switch {
		case continues:
			c = r.next[0]
			r.next = r.next[1:]
			c.Draining = false
			if d.Of(c.Key) != c {
				continue
			}
			d.Touch(c)
			if !c.Queued() {
				r.resumeLaneLocked(c)
				continue
			}
		default:
			if c = d.Front(now); c == nil {
				return nil
			}
		}
		due, in := c.IsDue(now, state == BreakerOpen)
		if !due {
			*wait = min(*wait, in)
			if continues {
				r.resumeLaneLocked(c)
				continue
			}
			return nil
		}
		if r.comesFirstLocked(c) {
			// Not yet: retry in a second.
			c.Head().At = now.Add(time.Second).UnixMilli()
			d.Touch(c)
			r.resumeLaneLocked(c)
			continue
		}
		if c.Strict && c.Head().After > 0 {
			r.findEarlierLocked(ctx, c)
			continue
		}
		g := c.Head().Group
		if g == nil {
			return c
		}
		why, until := r.gateLocked(g, c.Head().Asked, now)
		if why == "" {
			return c
		}
		d.Hold(c, g)
		r.resumeLaneLocked(c)
		if g.Reason != why {
			g.Reason, g.Since, r.recheck = why, now, true
		}
		sooner(wait, now, until)
	}
}

// comesFirstLocked reports whether events before those of the chain may still have to be
// published: they are in the producer or wait in the lane, or the sweep or a scan may still read
// them.
func (r *Replayer) comesFirstLocked(c *chains.Chain) bool {
	p := r.p
	if !c.Strict {
		return false
	}
	s := p.mu.of(c.Key)
	l := s.lanes[c.Key]
	_, claimed := s.claims[c.Key] // a reader searches for earlier events
	after := c.Head().After
	unread := after > p.mu.deadLetters.passed || after > 0 && p.mu.older != nil && p.mu.older.Behind(c.Aggregate) // by the sweep, or by a scan
	first, postponed := s.postponed[c.Key]
	return l != nil && l.outstanding > 0 || claimed || unread || postponed && c.Head().Seq >= first || c.Head().Seq > r.firstLocked(l)
}

// findEarlierLocked publishes the events before the head of a chain that are in no topic, and
// have no dead letter: an earlier process may have had them with the producer, and no reader
// offers them again if their rows were visible late. Then the chain is due again.
func (r *Replayer) findEarlierLocked(ctx context.Context, c *chains.Chain) {
	p, head, passed := r.p, *c.Head(), r.p.mu.deadLetters.passed
	again := p.now().Add(time.Second).UnixMilli()
	c.Head().At = again
	p.mu.deadLetters.Touch(c)
	r.resumeLaneLocked(c)
	release := p.claimLocked(p.mu.of(c.Key), c.Key)
	p.wg.Go(func() {
		found, err := r.findEarlier(ctx, head.ID, passed)
		release()
		if err != nil {
			if ctx.Err() == nil {
				r.log.Warn("failed to look up the events before a dead letter, retrying", "event_id", head.ID, "aggregate_id", c.Key, "err", err)
			}
			return
		}
		if !found {
			r.adopt(head.ID)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if ref, in := p.mu.deadLetters.Ref(head.ID); ref != nil && found {
			if in.ClearAfter(head.ID); ref.At == again { // otherwise somebody has changed it
				ref.At = head.At
			}
			p.mu.deadLetters.Touch(in)
		}
		p.wake()
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
		return r.p.SubmitMissing(ctx, f, false, nil)
	})
}

// firstLocked returns the lowest number of the events that wait in a lane, and a number
// above all if there are none.
func (r *Replayer) firstLocked(l *lane) (first int64) {
	first = math.MaxInt64
	if l == nil {
		return first
	}
	for _, it := range l.items {
		if it.event.Sequence > 0 && it.state != acked && !r.p.cfg.relaxed(it.event.Type) {
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

// resumeLaneLocked lets later events of the aggregate be added to the chain as dead
// letters, because the chain is not replayed now.
func (r *Replayer) resumeLaneLocked(c *chains.Chain) {
	if l, busy := r.p.mu.of(c.Key).lanes[c.Key]; busy {
		r.p.pumpLocked(l)
	}
}

// settleNextLocked releases the chains that were to continue.
func (r *Replayer) settleNextLocked() {
	next := r.next
	r.next = nil
	for _, c := range next {
		c.Draining = false
		if r.p.mu.deadLetters.Of(c.Key) == c {
			r.p.mu.deadLetters.Touch(c)
			r.resumeLaneLocked(c)
		}
	}
}

// takeLocked selects up to most dead letters from the front of a chain for replay.
func (r *Replayer) takeLocked(c *chains.Chain, now time.Time, state BreakerState, most int) *replayWork {
	p := r.p
	run := 1
	if g := c.Head().Group; state == BreakerClosed && (g == nil || g.Room(now, p.cfg.ReplayCanary) < 0) {
		run = min(replayRun, most)
	}
	w := &replayWork{chain: c}
	first := r.firstLocked(p.mu.of(c.Key).lanes[c.Key])
	for i, ref := range c.DeadLetters {
		if i == run || i > 0 && (ref.Group != nil || ref.At == chains.AtOperator || ref.At > now.UnixMilli() || c.Strict && (ref.Seq > first || ref.After > 0)) {
			break
		}
		if ref.Group != nil {
			ref.Group.Begin(now)
		}
		w.refs = append(w.refs, ref)
	}
	c.Draining = true
	p.mu.deadLetters.Touch(c)
	p.mu.deadLetters.replays += len(w.refs)
	return w
}

// isOut reports whether the event is known to be in its topic.
func (r *Replayer) isOut(id gocql.UUID) bool {
	_, _, in := r.p.ids.find(id)
	return bool(in)
}
