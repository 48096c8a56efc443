package publish

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
)

// replayWork contains dead letters from the front of a chain, to be replayed one after
// the other.
type replayWork struct {
	chain       *chains.Chain
	refs        []chains.Ref
	deadLetters []dlq.DeadLetter // claimed, from the front of refs
	at          int              // index of the dead letter being published
	left        int              // dead letters whose result is not stored yet
	over        bool
}

// batch contains works whose dead letters are claimed together. Those acknowledged
// at about the same time are resolved together.
type batch struct {
	r     *Replayer
	works []*replayWork
	ended chan replayed
	done  chan *replayWork // the result of one of its dead letters is stored
	wg    sync.WaitGroup
	// open contains the end of the claim of each claimed dead letter whose result is not
	// stored yet; zero if the claim is lost. It is used in steps alone.
	open map[gocql.UUID]time.Time
}

// replayed is the end of the replay of a dead letter.
type replayed struct {
	batchReplay
	replayEnd
}

func newBatch(r *Replayer, works []*replayWork) *batch {
	n := 0
	for _, w := range works {
		w.left = len(w.refs)
		n += len(w.refs)
	}
	return &batch{
		r: r, works: works, ended: make(chan replayed, n), done: make(chan *replayWork, n), open: make(map[gocql.UUID]time.Time, n),
	}
}

// run replays the dead letters. After ctx ends it begins no other replay, and waits for
// those in the producer until the publisher is closed.
func (b *batch) run(ctx context.Context) {
	p := b.r.p
	var ids []gocql.UUID
	for _, w := range b.works {
		for _, ref := range w.refs {
			ids = append(ids, ref.ID)
		}
	}
	claims := p.cfg.DeadLetters.ClaimMany(p.ctx, ids, b.r.owner, p.cfg.ClaimFor)
	for _, w := range b.works {
		n := len(w.refs)
		b.claimed(w, claims[:n])
		claims = claims[n:]
		b.publish(ctx, w)
	}
	keep := time.NewTicker(p.cfg.ClaimFor / 3)
	defer keep.Stop()
	for over := b.finish(ctx, false); over < len(b.works); over += b.finish(ctx, false) {
		var settled []settledDeadLetter
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
			// The next start finds them claimed, and reads which of them are in their topics.
			b.wg.Wait()
			b.finish(ctx, true)
			return
		}
	}
	b.wg.Wait()
}

// claimed processes the claims of a work. Only claimed dead letters from its front are
// published.
func (b *batch) claimed(w *replayWork, claims []dlq.Claimed) {
	for i, c := range claims {
		switch {
		case c.Err == nil && len(w.deadLetters) == i:
			w.deadLetters = append(w.deadLetters, c.DeadLetter)
			b.r.p.ask(func(*cell) { b.open[c.DeadLetter.EventID] = c.DeadLetter.ClaimedUntil })
		case c.Err == nil: // an earlier one was not claimed
			b.giveBack(w, &c.DeadLetter, "the previous dead letter could not be claimed")
		case i == 0:
			b.do(w, func() { b.notClaimed(w.refs[0], c.Err) })
		default:
			w.left-- // it remains in its chain
			b.r.uncount(w.refs[i])
		}
	}
}

// notClaimed processes a dead letter that could not be claimed.
func (b *batch) notClaimed(ref chains.Ref, err error) {
	r := b.r
	r.uncount(ref)
	refused, ok := errors.AsType[*dlq.RefusedError](err)
	switch {
	case ok && refused.Status == dlq.Processing:
		r.later(ref.ID, refused.ClaimedUntil.UnixMilli())
	case ok, errors.Is(err, dlq.ErrNotFound):
		r.adopt(ref.ID) // an operator or another worker has changed it
	default:
		if r.p.ctx.Err() == nil {
			r.log.Warn("failed to claim dead letter, retrying", "event_id", ref.ID, "err", err)
		}
		r.later(ref.ID, r.p.cfg.Clock.Now().Add(time.Second).UnixMilli())
	}
}

// publish sends the next dead letter of a work, if there is one.
func (b *batch) publish(ctx context.Context, w *replayWork) {
	if w.at >= len(w.deadLetters) {
		return
	}
	deadLetter := &w.deadLetters[w.at]
	of := batchReplay{b: b, work: w, id: deadLetter.EventID}
	switch {
	case ctx.Err() != nil:
		of.end(replayEnd{err: errCalledOff})
	case b.r.isOut(deadLetter.EventID):
		of.end(replayEnd{found: true})
	case b.r.reopened.has(deadLetter.EventID):
		b.wg.Go(func() {
			switch found, err := b.r.reopened.isInTopic(b.r.p.ctx, b.r.p.proofs, deadLetter.EventID); {
			case err != nil:
				of.end(replayEnd{err: err})
			case found:
				of.end(replayEnd{found: true, note: "found in its topic: the database was restored after its replay"})
			default:
				b.send(of, deadLetter)
			}
		})
	default:
		b.send(of, deadLetter)
	}
}

// send sends the event of a dead letter, after its row was read again if it had none.
func (b *batch) send(of batchReplay, deadLetter *dlq.DeadLetter) {
	resend := func(e outbox.Event) {
		b.r.p.ask(func(c *cell) { c.resend(e, deadLetter, of) })
	}
	if !deadLetter.Unread() {
		resend(storedEvent(deadLetter))
		return
	}
	b.wg.Go(func() {
		e, fate, err := b.r.readAgain(b.r.p.ctx, deadLetter)
		if e.ID != storedID(deadLetter) {
			of.own = e.ID
		}
		switch {
		case err != nil:
			of.end(replayEnd{err: err})
		case fate.Settled():
			of.end(replayEnd{found: true, discarded: fate == earlier.DeadLetter})
		default:
			of.reserved = !of.own.IsZero()
			resend(e)
		}
	})
}

// errClaimLost means that a dead letter was not published, because its claim expired or
// another process holds it. An operator may have discarded or edited it since.
var errClaimLost = errors.New("claim lost")

// errCalledOff means that a dead letter was not published because the relay stops.
var errCalledOff = errors.New("relay is stopping")

// settledDeadLetter is a dead letter whose event is in its topic.
type settledDeadLetter struct {
	work   *replayWork
	ref    chains.Ref
	result string
	dlq.Settlement
}

// back processes the end of a replay.
func (b *batch) back(ctx context.Context, x replayed, settled *[]settledDeadLetter) {
	r, w, end := b.r, x.work, x.replayEnd
	if !x.own.IsZero() && end.err != nil && x.reserved {
		r.p.Forget(x.own.UUID())
	}
	ref, deadLetter := w.refs[w.at], &w.deadLetters[w.at]
	if end.err == nil {
		s := settledDeadLetter{w, ref, "published", dlq.Settlement{
			DeadLetter: *deadLetter, How: dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: end.topic, Partition: end.partition, Offset: end.offset, Note: end.note},
		}}
		if end.found {
			// Published by a relay that did not store the result before its claim was removed.
			s.result, s.How = "found", dlq.Outcome{Kind: dlq.OutcomeFound, Note: cmp.Or(end.note, "found in its topic before a replay")}
		}
		if end.discarded {
			s.How.Kind = dlq.OutcomeDiscarded
		}
		*settled = append(*settled, s)
		w.at++
		b.publish(ctx, w)
		return
	}
	rest := w.deadLetters[w.at+1:]
	w.at = len(w.deadLetters)
	for i := range rest {
		b.giveBack(w, &rest[i], "the previous dead letter was not published")
	}
	b.do(w, func() {
		switch {
		case errors.Is(end.err, errStalled):
			at := r.p.cfg.Clock.Now().Add(r.p.cfg.BreakerOpen).UnixMilli()
			r.calledOff(ref, deadLetter, end.err, at)
			r.p.ask(func(c *cell) { c.waitForPartition(ref.ID, at) })
		case errors.Is(end.err, errNotRead), errors.Is(end.err, errNotSearched):
			r.calledOff(ref, deadLetter, end.err, r.p.cfg.Clock.Now().Add(r.p.cfg.BreakerOpen).UnixMilli())
		case errors.Is(end.err, errBreakerOpen):
			r.calledOff(ref, deadLetter, end.err, chains.AtBreaker)
		case errors.Is(end.err, errCalledOff), errors.Is(end.err, errClaimLost):
			r.calledOff(ref, deadLetter, end.err, chains.AtOnce)
		case failure.Classify(end.err) == failure.Stopped:
			// The next start finds it claimed, and reads whether it is in its topic.
			r.uncount(ref)
			r.later(ref.ID, chains.AtOperator)
		default:
			r.failed(ref, deadLetter, end)
		}
		b.close(ref.ID)
	})
}

// settle resolves dead letters whose events are in their topics.
func (b *batch) settle(settled []settledDeadLetter) {
	if len(settled) == 0 {
		return
	}
	r := b.r
	many := make([]dlq.Settlement, len(settled))
	for i, s := range settled {
		many[i] = s.Settlement
	}
	errs := r.p.cfg.DeadLetters.ResolveMany(r.p.ctx, many, r.owner)
	r.p.ask(func(c *cell) {
		for i, s := range settled {
			if errs[i] != nil {
				continue
			}
			if g := s.ref.Group; g != nil {
				g.Succeeded()
			}
			c.metrics.settled(&s.DeadLetter, s.result)
			c.settled(s.ref.ID, c.deadLetterTime().UnixMicro())
			delete(b.open, s.ref.ID)
			s.work.left--
		}
	})
	for i, s := range settled {
		if errs[i] == nil {
			continue
		}
		b.do(s.work, func() {
			r.uncount(s.ref)
			if r.insist(r.p.ctx, s.ref.ID, "resolve", func() error {
				return r.p.cfg.DeadLetters.ResolveMany(r.p.ctx, []dlq.Settlement{s.Settlement}, r.owner)[0]
			}) {
				r.metrics.settled(&s.DeadLetter, s.result)
				r.drop(s.ref.ID)
			}
			b.close(s.ref.ID)
		})
	}
}

// do runs f, which stores the result of a dead letter of a work, concurrently.
func (b *batch) do(w *replayWork, f func()) {
	b.wg.Go(func() {
		f()
		b.done <- w
	})
}

// giveBack removes the claim of a dead letter that was not tried.
func (b *batch) giveBack(w *replayWork, deadLetter *dlq.DeadLetter, why string) {
	b.do(w, func() {
		r := b.r
		r.insist(r.p.ctx, deadLetter.EventID, "release", func() error { return r.p.cfg.DeadLetters.Unclaim(r.p.ctx, deadLetter.EventID, r.owner, why) })
		b.close(deadLetter.EventID)
	})
}

// calledOff removes the claim of a dead letter whose replay was canceled; it is due at at.
func (r *Replayer) calledOff(ref chains.Ref, deadLetter *dlq.DeadLetter, why error, at int64) {
	r.metrics.Replays.WithLabelValues(strategyLabel(deadLetter.Strategy), "called_off").Inc()
	r.uncount(ref)
	if r.insist(r.p.ctx, ref.ID, "release", func() error { return r.p.cfg.DeadLetters.Unclaim(r.p.ctx, ref.ID, r.owner, why.Error()) }) {
		r.later(ref.ID, at)
	}
}

// close records that the result of a dead letter is stored, or will not be stored.
func (b *batch) close(id gocql.UUID) {
	b.r.p.ask(func(*cell) { delete(b.open, id) })
}

// extend extends the claims of dead letters in progress.
func (b *batch) extend() {
	p := b.r.p
	var ids []gocql.UUID
	p.ask(func(*cell) { ids = slices.Collect(maps.Keys(b.open)) })
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			until := p.cfg.Clock.Now().Add(p.cfg.ClaimFor)
			err := p.cfg.DeadLetters.Extend(p.ctx, id, b.r.owner, p.cfg.ClaimFor)
			if errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) {
				until = time.Time{}
			}
			p.ask(func(*cell) {
				if _, open := b.open[id]; open && (err == nil || until.IsZero()) {
					b.open[id] = until
				}
			})
			if err != nil && p.ctx.Err() == nil {
				b.r.log.Warn("failed to extend the claim of a dead letter", "event_id", id, "err", err)
			}
		})
	}
	wg.Wait()
}

// finish ends the works whose results are all stored, or all works, and returns their number.
func (b *batch) finish(ctx context.Context, all bool) (n int) {
	for _, w := range b.works {
		if !w.over && (all || w.left == 0) {
			w.over = true
			n++
			b.r.p.ask(func(c *cell) { c.finishReplay(w, ctx.Err() == nil) })
		}
	}
	return n
}

// finishReplay continues the chain of a work, with its next replay if proceed is set.
func (c *cell) finishReplay(w *replayWork, proceed bool) {
	chain := w.chain
	c.dead.replays -= len(w.refs)
	chain.Draining = false
	if c.dead.Of(chain.Key) == chain { // another batch may drain the chain that replaced it
		if due, _ := chain.IsDue(c.deadLetterTime()); due && proceed && !c.closed && c.calls.State() != BreakerOpen {
			chain.Draining = true
			c.replays.next = append(c.replays.next, chain)
		} else {
			c.dead.Touch(chain)
		}
	}
	c.resumeLane(chain)
	c.do(effect{do: effReplay})
}

// uncount records that the replay of a dead letter ended without a result.
func (r *Replayer) uncount(ref chains.Ref) {
	if ref.Group != nil {
		r.p.ask(func(*cell) { ref.Group.Returned() })
	}
}

// batchReplay is the replay of the dead letter of a batch.
type batchReplay struct {
	b    *batch
	work *replayWork
	id   gocql.UUID
	// own is the id of the event, if the row has got another one than the dead letter; then it is
	// reserved for the replay.
	own      outbox.ID
	reserved bool
}

// isClaimed reports whether the claim lasts long enough to send the dead letter now: claims
// are extended after a third of their duration, and nothing is sent after two thirds.
func (x batchReplay) isClaimed(now time.Time) bool {
	return x.b.open[x.id].Sub(now) > x.b.r.p.cfg.ClaimFor/3
}

func (x batchReplay) end(end replayEnd) {
	switch {
	case x.own.IsZero(), end.err != nil && x.reserved:
	case end.discarded:
		end.note = "its row is dead letter " + x.own.String() + " now"
	default:
		end.note = "as event " + x.own.String() + ", the id that its row has now"
	}
	x.b.ended <- replayed{x, end}
}
