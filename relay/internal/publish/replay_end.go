package publish

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// failed stores a failed replay and sets when the dead letter is due next.
func (r *Replayer) failed(ref chains.Ref, deadLetter *dlq.DeadLetter, end replayEnd) {
	p := r.p
	class, code, text, now := classifyError(end.err), brokerCode(end.err), end.err.Error(), p.cfg.Clock.Now()
	choice := p.cfg.Rules.Choose(&dlq.Subject{
		ErrorClass: class, ErrorCode: code, EventType: deadLetter.EventType, AggregateType: deadLetter.AggregateType, Table: deadLetter.Table,
		FailedReplays: deadLetter.Replays + 1, FirstFailedAt: deadLetter.FirstFailedAt,
	}, now)
	f := dlq.Failure{
		Class: class, Code: code, Text: text, Chain: errorTexts(end.err), Attempts: end.attempts,
		Strategy: choice.Strategy, Rule: choice.Rule, NextAttempt: choice.NextAttempt,
		MaxReplays: choice.MaxReplays, SameError: choice.SameError,
		Final: choice.Strategy == dlq.StrategyManual, Metadata: p.load.renewed(deadLetter.Metadata),
	}
	if f.NextAttempt.IsZero() {
		f.NextAttempt = now // the strategy does not depend on time
	}
	if f.Final && choice.Rule != dlq.RuleNeedsAPerson {
		f.Waiting = "by the rule " + choice.Rule
	}
	r.metrics.Replays.WithLabelValues(strategyLabel(deadLetter.Strategy), "failed").Inc()
	r.log.Warn("replay failed", "event_id", ref.ID, "aggregate_id", deadLetter.AggregateID, "class", class, "rule", choice.Rule,
		"strategy", choice.Strategy, "err", end.err, trace.Attrs(deadLetter.Headers))
	if p.spans != nil {
		e := storedEvent(deadLetter)
		p.spans.Failed(&e, deadLetter.Topic, class, text, end.attempts, trace.Capture{At: end.captured, By: deadLetter.Metadata[metaCaptured]})
	}
	var status dlq.Status
	if !r.insist(p.ctx, ref.ID, "record the failure of", func() (err error) {
		status, err = p.cfg.DeadLetters.Fail(p.ctx, ref.ID, r.owner, f)
		return err
	}) {
		r.uncount(ref)
		return
	}
	p.ask(func(c *cell) { c.failReplay(ref, class, code, end.err, &choice, status, now) })
}

// failReplay sets when a dead letter is due whose replay has failed.
func (c *cell) failReplay(ref chains.Ref, class, code string, err error, choice *dlq.Choice, status dlq.Status, now time.Time) {
	next := choice.NextAttempt
	if status != dlq.Pending {
		next = time.Time{}
	}
	key := dlq.FailureKey(class, code, err.Error())
	if g := ref.Group; g != nil {
		if g.Failure != key {
			g.Returned()
		} else if g.Died(now, next, c.cfg.ReplayCanary, err.Error()) {
			c.replays.recheck = true
			c.metrics.CanaryStops.Inc()
			deadLetters, until := g.DeadLetters, g.Until
			c.report(func(to *Publisher) {
				to.log.Warn("canary failed with the same error; dead letters of its group wait", "rule", g.Rule, "class", class,
					"dead_letters", deadLetters, "until", until, "err", err)
			})
		}
	}
	c.dead.Change(ref.ID, func(own *chains.Ref) {
		own.Asked, own.Group, own.At = false, c.dead.Group(choice.Rule, key), chains.AtOperator
		if status == dlq.Pending {
			own.At = chains.DueAt(choice.Strategy, next)
		}
	})
}

// strategyLabel returns the metric label of a strategy, from a fixed set.
func strategyLabel(s string) string {
	if slices.Contains(dlq.Strategies, s) {
		return s
	}
	return dlq.StrategyManual
}

// insist retries an operation on a claimed dead letter until it succeeds. It returns
// false if the claim was lost, after the state was read from the table, or if the relay
// stops, or ctx ends; the next start then finds the dead letter claimed.
func (r *Replayer) insist(ctx context.Context, id gocql.UUID, what string, f func() error) bool {
	for attempt := 1; ; attempt++ {
		err := f()
		switch {
		case err == nil:
			return true
		case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
			r.log.Error("claimed dead letter was changed by another process", "event_id", id, "what", what, "err", err)
			r.adopt(id)
			return false
		case ctx.Err() != nil:
			r.later(id, chains.AtOperator)
			return false
		}
		r.log.Warn("failed to "+what+" a dead letter, retrying", "event_id", id, "attempt", attempt, "err", err)
		_ = retry.Wait(ctx, retry.Required(r.p.cfg.RetryMin, r.p.cfg.RetryMax, attempt))
	}
}

// resend publishes the event of a dead letter in a separate lane, as long as it
// is claimed. An event that is due later than any may be is sent after outbox.MaxDelay: its lane
// and the claim are held until then.
func (c *cell) resend(e outbox.Event, deadLetter *dlq.DeadLetter, of replay) {
	limitDelay(&e, c.now)
	topic, topicErr := c.env.Of(&e)
	if deadLetter.Edit != nil && deadLetter.Edit.Topic != "" {
		topic, topicErr = deadLetter.Edit.Topic, nil
	}
	l := &lane{id: e.AggregateID.UUID(), replay: of}
	it := &item{
		lane: l, event: e, written: deadLetter.WrittenAt, captured: c.now, topic: topic, topicErr: topicErr,
		by: parseSource(deadLetter.Metadata[metaCaptured]), earlier: int32(min(deadLetter.Attempts, math.MaxInt32)),
	}
	if deadLetter.Edit != nil {
		it.original = storedID(deadLetter)
	}
	l.items = append(l.items, it)
	c.replaying[l] = struct{}{}
	c.pump(l)
}
