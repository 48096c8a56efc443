package publish

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// replayWork is letters from the front of a chain that are replayed one after
// the other.
type replayWork struct {
	chain   *chain
	refs    []letterRef
	letters []dlq.DeadLetter // claimed, from the front of refs
	at      int              // what is being published
	left    int              // letters of which it is not yet written down what became
	over    bool
}

// batch is works whose letters are claimed together. What is acknowledged
// meanwhile is resolved together.
type batch struct {
	r     *replayer
	works []*replayWork
	ended chan replayed
	done  chan *replayWork // a letter of it is written down
	wg    sync.WaitGroup

	mu sync.Mutex
	// open are the letters that are claimed and of which nothing is written down yet, by
	// the end of their claims; zero if the claim is lost.
	open map[gocql.UUID]time.Time
}

// replayed is a letter that is back.
type replayed struct {
	work *replayWork
	end  replayEnd
}

func newBatch(r *replayer, works []*replayWork) *batch {
	n := 0
	for _, w := range works {
		w.left = len(w.refs)
		n += len(w.refs)
	}
	return &batch{
		r: r, works: works, ended: make(chan replayed, n), done: make(chan *replayWork, n), open: make(map[gocql.UUID]time.Time, n),
	}
}

// run replays the letters. When ctx ends no other is begun, and those that are
// with the producer are waited for until the publisher is closed.
func (b *batch) run(ctx context.Context) {
	p := b.r.p
	var ids []gocql.UUID
	for _, w := range b.works {
		for _, ref := range w.refs {
			ids = append(ids, ref.id)
		}
	}
	claims := p.letters.store.ClaimMany(p.ctx, ids, b.r.owner, p.cfg.ClaimFor)
	for _, w := range b.works {
		n := len(w.refs)
		b.claimed(w, claims[:n])
		claims = claims[n:]
		b.publish(ctx, w)
	}
	keep := time.NewTicker(p.cfg.ClaimFor / 3)
	defer keep.Stop()
	for over := b.finished(ctx); over < len(b.works); over += b.finished(ctx) {
		var settled []settledLetter
		select {
		case x := <-b.ended:
			b.back(ctx, x, &settled)
			for more := true; more; {
				select {
				case x := <-b.ended:
					b.back(ctx, x, &settled)
				default:
					more = false
				}
			}
			b.settle(settled)
		case w := <-b.done:
			w.left--
		case <-keep.C:
			b.extend()
		case <-p.ctx.Done():
			// The next start finds them claimed, and which of them are in their topics.
			b.wg.Wait()
			b.abandon(ctx)
			return
		}
	}
	b.wg.Wait()
}

// claimed takes over what was claimed of a work: letters from its front.
func (b *batch) claimed(w *replayWork, claims []dlq.Claimed) {
	for i, c := range claims {
		switch {
		case c.Err == nil && len(w.letters) == i:
			w.letters = append(w.letters, c.DeadLetter)
			b.keep(c.DeadLetter.EventID, c.DeadLetter.ClaimedUntil)
		case c.Err == nil: // behind one that is not
			b.giveBack(w, &c.DeadLetter, "the one before it could not be claimed")
		case i == 0:
			b.do(w, func() { b.notClaimed(w.refs[0], c.Err) })
		default:
			w.left-- // it stays where it is
			b.r.uncount(w.refs[i])
		}
	}
}

// notClaimed answers to a letter that could not be claimed.
func (b *batch) notClaimed(ref letterRef, err error) {
	r := b.r
	r.uncount(ref)
	refused, ok := errors.AsType[*dlq.RefusedError](err)
	switch {
	case ok && refused.Status == dlq.Processing:
		r.later(ref.id, refused.ClaimedUntil.UnixMilli())
	case ok, errors.Is(err, dlq.ErrNotFound):
		r.adopt(ref.id) // an operator or another worker was there
	default:
		if r.p.ctx.Err() == nil {
			r.log.Warn("cannot claim a dead letter; trying again", "event_id", ref.id, "err", err)
		}
		r.later(ref.id, time.Now().Add(time.Second).UnixMilli())
	}
}

// publish hands on the next letter of a work, if there is one.
func (b *batch) publish(ctx context.Context, w *replayWork) {
	if w.at >= len(w.letters) {
		return
	}
	letter := &w.letters[w.at]
	ended := func(end replayEnd) { b.ended <- replayed{w, end} }
	switch {
	case ctx.Err() != nil:
		ended(replayEnd{err: errCalledOff})
	case b.r.isOut(letter.EventID):
		ended(replayEnd{found: true})
	case mustReadAgain(letter):
		b.wg.Go(func() { // it is read again
			e, err := b.r.eventOf(b.r.p.ctx, letter)
			if err != nil {
				ended(replayEnd{err: err})
				return
			}
			b.r.p.resend(e, letter, b.holds, ended)
		})
	default:
		b.r.p.resend(eventOfLetter(letter), letter, b.holds, ended)
	}
}

// errClaimLost is why a letter was not published: its claim ran out, or somebody else has
// the letter. An operator may have discarded or edited it since.
var errClaimLost = errors.New("its claim was lost")

// keep notes until when the letter is claimed.
func (b *batch) keep(id gocql.UUID, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[id] = until
}

// holds reports whether the letter is claimed for long enough to be sent now: claims are
// extended when a third of them has passed, and after two thirds nothing is sent.
func (b *batch) holds(id gocql.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.open[id]) > b.r.p.cfg.ClaimFor/3
}

// errCalledOff is why a letter was not published: the relay stops.
var errCalledOff = errors.New("the relay stops")

// settledLetter is a letter that is in its topic.
type settledLetter struct {
	work   *replayWork
	ref    letterRef
	result string
	dlq.Settlement
}

// back takes what became of a letter.
func (b *batch) back(ctx context.Context, x replayed, settled *[]settledLetter) {
	r, w, end := b.r, x.work, x.end
	ref, letter := w.refs[w.at], &w.letters[w.at]
	if end.err == nil {
		s := settledLetter{w, ref, "published", dlq.Settlement{
			DeadLetter: *letter, How: dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: end.topic, Partition: end.partition, Offset: end.offset},
		}}
		if end.found {
			// Published by a relay that could not say so before somebody took the claim off.
			s.result, s.How = "found", dlq.Outcome{Kind: dlq.OutcomeFound, Note: "found in its topic before a replay"}
		}
		*settled = append(*settled, s)
		w.at++
		b.publish(ctx, w)
		return
	}
	rest := w.letters[w.at+1:]
	w.at = len(w.letters)
	for i := range rest {
		b.giveBack(w, &rest[i], "the one before it was not published")
	}
	b.do(w, func() {
		switch {
		case errors.Is(end.err, errStalled), errors.Is(end.err, errNotRead):
			r.calledOff(ref, letter, end.err, time.Now().Add(r.p.cfg.BreakerOpen).UnixMilli())
		case errors.Is(end.err, errBreakerOpen):
			r.calledOff(ref, letter, end.err, atBreaker)
		case errors.Is(end.err, errCalledOff), errors.Is(end.err, errClaimLost):
			r.calledOff(ref, letter, end.err, atOnce)
		case failure.Classify(end.err) == failure.Stopped:
			// The next start finds it claimed, and whether it is in its topic.
			r.uncount(ref)
			r.later(ref.id, atOperator)
		default:
			r.failed(ref, letter, end)
		}
		b.close(ref.id)
	})
}

// settle resolves letters that are in their topics.
func (b *batch) settle(settled []settledLetter) {
	if len(settled) == 0 {
		return
	}
	r := b.r
	many := make([]dlq.Settlement, len(settled))
	for i, s := range settled {
		many[i] = s.Settlement
	}
	errs := r.p.letters.store.ResolveMany(r.p.ctx, many, r.owner)
	r.p.mu.Lock()
	for i, s := range settled {
		if errs[i] != nil {
			continue
		}
		if g := s.ref.group; g != nil {
			g.succeeded()
		}
		r.metrics.settled(&s.DeadLetter, s.result)
		r.p.dropLetter(s.ref.id, time.Now().UnixMicro())
		b.close(s.ref.id)
		s.work.left--
	}
	r.p.mu.Unlock()
	for i, s := range settled {
		if errs[i] == nil {
			continue
		}
		b.do(s.work, func() {
			r.uncount(s.ref)
			if r.insist(s.ref.id, "resolve", func() error { return r.p.letters.store.Resolve(r.p.ctx, s.ref.id, r.owner, s.How) }) {
				r.metrics.settled(&s.DeadLetter, s.result)
				r.drop(s.ref.id)
			}
			b.close(s.ref.id)
		})
	}
}

// do writes down what became of a letter of a work, beside the others.
func (b *batch) do(w *replayWork, f func()) {
	b.wg.Go(func() {
		f()
		b.done <- w
	})
}

// giveBack takes the claim off a letter that was not tried.
func (b *batch) giveBack(w *replayWork, letter *dlq.DeadLetter, why string) {
	b.do(w, func() {
		r := b.r
		r.insist(letter.EventID, "give back", func() error { return r.p.letters.store.Unclaim(r.p.ctx, letter.EventID, r.owner, why) })
		b.close(letter.EventID)
	})
}

// calledOff takes the claim off a letter whose replay was called off; it is due at at.
func (r *replayer) calledOff(ref letterRef, letter *dlq.DeadLetter, why error, at int64) {
	r.metrics.Replays.WithLabelValues(strategyLabel(letter.Strategy), "called_off").Inc()
	r.uncount(ref)
	if r.insist(ref.id, "give back", func() error { return r.p.letters.store.Unclaim(r.p.ctx, ref.id, r.owner, why.Error()) }) {
		r.later(ref.id, at)
	}
}

// close notes that what became of a letter is written down, or is not to be.
func (b *batch) close(id gocql.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, id)
}

// extend keeps the claims of letters that are under way.
func (b *batch) extend() {
	p := b.r.p
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.open))
	b.mu.Unlock()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			until := time.Now().Add(p.cfg.ClaimFor)
			err := p.letters.store.Extend(p.ctx, id, b.r.owner, p.cfg.ClaimFor)
			if errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) {
				until = time.Time{}
			}
			b.mu.Lock()
			if _, open := b.open[id]; open && (err == nil || until.IsZero()) {
				b.open[id] = until
			}
			b.mu.Unlock()
			if err != nil && p.ctx.Err() == nil {
				b.r.log.Warn("cannot extend the claim of a dead letter", "event_id", id, "err", err)
			}
		})
	}
	wg.Wait()
}

// finished ends works of which everything is written down, and says how many.
func (b *batch) finished(ctx context.Context) (n int) {
	for _, w := range b.works {
		if w.left == 0 && !w.over {
			w.over = true
			n++
			b.r.finish(ctx, w)
		}
	}
	return n
}

// abandon ends the others.
func (b *batch) abandon(ctx context.Context) {
	for _, w := range b.works {
		if !w.over {
			b.r.finish(ctx, w)
		}
	}
}

// finish lets the chain of a work go on.
func (r *replayer) finish(ctx context.Context, w *replayWork) {
	p, d, c := r.p, r.p.letters, w.chain
	p.mu.Lock()
	defer p.mu.Unlock()
	d.underWay -= len(w.refs)
	c.draining = false
	if d.chains[c.key] == c { // another in its place may be drained by another batch
		if due, _ := c.isDue(time.Now(), p.breaker.status.State); due && ctx.Err() == nil && !p.closed {
			c.draining = true
			r.next = append(r.next, c)
		} else {
			d.touch(c)
		}
	}
	r.letPass(c)
	p.wake()
}

// uncount notes that the replay of a letter ended without an answer.
func (r *replayer) uncount(ref letterRef) {
	if ref.group == nil {
		return
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	ref.group.returned()
}
