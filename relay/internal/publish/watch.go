package publish

import (
	"context"
	"time"
)

// watch handles timeouts, failed connections, stalled partitions and changes of the
// breaker until the publisher is closed.
func (p *Publisher) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-p.calls.Wakes():
		}
		p.mu.Lock()
		wait := p.check()
		p.mu.Unlock()
		timer.Reset(wait)
	}
}

// check handles calls without an answer, stalled partitions and a change of the breaker,
// and retries the lanes that the breaker refused. It returns the time until the next
// check. Called locked.
func (p *Publisher) check() time.Duration {
	now := time.Now()
	p.calls.Check(now, p.busyPartitions())
	p.checkFlows(now)
	p.answerBreaker()
	p.pumpRefused()
	return p.calls.NextCheck(len(p.flows) > 0)
}

// pumpRefused retries the lanes that the breaker refused. Called locked.
func (p *Publisher) pumpRefused() {
	if p.calls.State() != BreakerClosed || len(p.refused) == 0 {
		return
	}
	refused := p.refused
	p.refused = make(map[*lane]struct{})
	for l := range refused {
		if len(l.items) > 0 {
			p.pump(l)
		}
	}
}

// answerBreaker reacts to a change of the breaker. Called locked.
func (p *Publisher) answerBreaker() {
	state, changed := p.calls.TakeChange()
	if !changed {
		if state == BreakerHalfOpen {
			p.ping()
		}
		return
	}
	switch state {
	case BreakerOpen:
		// Records that the broker cannot have are returned, then spilled or kept in their lanes.
		for l := range p.sending {
			l.flight.Recall()
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
	if p.closed {
		return
	}
	c := p.calls.BeginPing()
	if c == nil {
		return
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
		defer cancel()
		p.calls.EndPing(c, p.producer.Ping(ctx))
	})
}
