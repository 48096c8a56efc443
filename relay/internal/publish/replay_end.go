package publish

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// failed notes a replay that did not succeed.
func (r *replayer) failed(ref letterRef, letter *dlq.DeadLetter, end replayEnd) {
	p := r.p
	class, code, text, now := classOf(end.err), codeOf(end.err), end.err.Error(), time.Now()
	choice := p.cfg.Rules.Choose(&dlq.Subject{
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
	r.metrics.Replays.WithLabelValues(strategyLabel(letter.Strategy), "failed").Inc()
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
			r.metrics.CanaryStops.Inc()
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
		_ = retry.Wait(ctx, r.p.cfg.askAgain(attempt))
	}
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

// resend publishes the event of a letter in a lane of its own, as long as the letter is
// claimed. ended is called once; both are called under the lock.
func (p *Publisher) resend(e outbox.Event, letter *dlq.DeadLetter, holds func(gocql.UUID) bool, ended func(replayEnd)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := newLane(e.AggregateID, line{})
	l.ended = ended
	l.claimed = func() bool { return holds(letter.EventID) }
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
func (p *Publisher) endReplay(l *lane, end replayEnd) {
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
func (p *Publisher) replayed(l *lane, it *item, r *kgo.Record) {
	p.remembered(it, true)
	p.endReplay(l, replayEnd{topic: r.Topic, partition: r.Partition, offset: r.Offset})
}
