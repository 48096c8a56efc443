package publish

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// answerBreaker reacts to a change of the breaker. Called locked.
func (p *Publisher) answerBreaker() {
	state := p.breaker.status.State
	if !p.breaker.moved {
		if state == BreakerHalfOpen && len(p.calls) == 0 {
			p.ping()
		}
		return
	}
	p.breaker.moved = false
	switch state {
	case BreakerOpen:
		p.call = nil
		// Records that the broker cannot have are returned, then spilled or kept in their lanes.
		for l := range p.sending {
			l.ctx.giveUp()
		}
	case BreakerHalfOpen, BreakerClosed:
		p.wake() // an aggregate's dead letters are published before its newer events
	}
	clear(p.refused)
	for l := range p.replaying {
		p.pump(l)
	}
	for _, l := range p.lanes {
		p.pump(l)
	}
}

// ping probes the broker when there is no event to send. Called locked.
func (p *Publisher) ping() {
	if p.pinging || p.closed || p.asking > 0 {
		return // the creation of a topic probes the broker
	}
	c := p.admit()
	if c == nil {
		return
	}
	c.open++
	p.pinging = true
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
		defer cancel()
		err := p.client.Ping(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pinging = false
		p.answered(c, err)
		p.nudge()
	})
}

// attempt runs f as a call of the breaker, once the breaker admits it. Only a missing
// answer counts as a failure; an error returned by the broker is an answer. One topic
// that cannot be created therefore does not open the breaker.
func (p *Publisher) attempt(ctx context.Context, f func() error) error {
	count := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking += n
	}
	count(1)
	defer count(-1)
	for {
		p.mu.Lock()
		c := p.admit()
		if c != nil {
			c.open++
		}
		p.mu.Unlock()
		if c == nil {
			if err := retry.Wait(ctx, max(p.cfg.BreakerOpen/20, 50*time.Millisecond)); err != nil {
				return err
			}
			continue
		}
		err := f()
		p.mu.Lock()
		_, answer := errors.AsType[*kerr.Error](err)
		switch {
		case err == nil, answer, failure.Classify(err) == failure.Permanent, failure.Classify(err) == failure.Fatal:
			p.answered(c, nil)
		case failure.Classify(err) == failure.Stopped:
			p.answered(c, errMerged)
		default:
			p.answered(c, err)
		}
		p.mu.Unlock()
		p.nudge()
		return err
	}
}
