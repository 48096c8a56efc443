package publish

import (
	"errors"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

const (
	// callFor is how long records are gathered into one call of the breaker, and
	// how close failures are that count as one: a broker that goes away fails
	// everything under way at the same moment, and that is one failure.
	callFor = 50 * time.Millisecond
	// watchEvery is how often calls are looked at while there are any.
	watchEvery = 100 * time.Millisecond
)

// call is what the breaker counts: the records that were handed to the producer
// within callFor, until all of them are acknowledged. When the broker refuses
// connections, loses one with a request on it, or says nothing for
// AttemptTimeout, the calls under way become one that failed, and what is not
// acknowledged is its next attempt. The producer retries by itself and keeps
// what the broker may have written, so the records stay where they are.
type call struct {
	began   time.Time
	attempt int
	open    int         // records that are not back
	done    func(error) // nil when the breaker does not count it
	into    *call       // what it became part of
}

func (c *call) root() *call {
	for c.into != nil {
		c = c.into
	}
	return c
}

// admit returns the call that a record sent now is part of, nil if the breaker
// lets nothing through. After a failure, until the broker answers, it lets one
// record through at a time: what was never sent can become a dead letter when
// the breaker opens, what was sent has to wait for the broker. Called locked.
func (p *Publisher) admit() *call {
	now := time.Now()
	if p.doubt && slices.ContainsFunc(p.calls, func(c *call) bool { return c.attempt == 1 && c.open > 0 }) {
		return nil
	}
	if c := p.call; c != nil && now.Sub(c.began) < callFor && c.attempt == 1 && c.into == nil && c.open > 0 && p.breaker.status.State == BreakerClosed {
		return c
	}
	p.call = nil
	done, err := p.breaker.Allow()
	if err != nil {
		return nil
	}
	c := &call{began: now, attempt: 1, done: done}
	if len(p.calls) == 0 {
		p.nudge()
	}
	p.calls = append(p.calls, c)
	if p.breaker.status.State == BreakerClosed && !p.doubt {
		p.call = c
	}
	return c
}

// answered notes that a record of the call is back: err is nil if the broker
// answered, whatever it said, and errMerged if it was not asked. Called locked.
func (p *Publisher) answered(c *call, err error) {
	c = c.root()
	if err != nil && !errors.Is(err, errMerged) {
		p.strike(c, err)
		err = errMerged // the failure is counted
	}
	if err == nil && p.doubt {
		p.doubt = false
		p.nudge()
	}
	if c.open--; c.open > 0 {
		return
	}
	if i := slices.Index(p.calls, c); i >= 0 {
		p.calls = slices.Delete(p.calls, i, i+1)
	}
	if p.call == c {
		p.call = nil
	}
	if c.done != nil {
		c.done(err)
		c.done = nil
	}
}

// strike counts a failure of all calls under way as one. c is the call that
// failed, nil for all. Called locked.
func (p *Publisher) strike(c *call, cause error) {
	if len(p.calls) == 0 {
		return
	}
	if c == nil {
		c = p.calls[0]
	}
	now := time.Now()
	for _, other := range p.calls {
		if other == c {
			continue
		}
		switch {
		case other.done == nil:
		case c.done == nil: // the breaker has had its say on c, and not on other
			c.done = other.done
		default:
			other.done(errMerged)
		}
		c.open += other.open
		c.began, c.attempt = minTime(c.began, other.began), max(c.attempt, other.attempt)
		other.into, other.done = c, nil
	}
	p.calls = append(p.calls[:0], c)
	p.call = nil
	if now.Sub(p.struck) < callFor {
		return // the same failure
	}
	p.struck, p.doubt = now, true
	if c.done != nil {
		c.done(cause)
		c.done = nil
	}
	c.began, c.attempt = now, c.attempt+1
	if c.attempt > len(p.cfg.RetryDelays) {
		// The breaker has had its say; what is left may be one topic's trouble.
		p.calls = p.calls[:0]
	} else if p.breaker.status.State == BreakerClosed {
		c.done, _ = p.breaker.Allow()
	}
	p.nudge()
}

// answersOthers reports whether the broker is well as far as others can tell, so that
// what the call waits for is the trouble of single partitions, which have flows of
// their own: it acknowledged something in the second half of the time that the call
// had, or it answers requests and one partition alone has records outstanding. Called
// locked.
func (p *Publisher) answersOthers(c *call, now time.Time) bool {
	if p.acked.Sub(c.began) > p.cfg.AttemptTimeout/2 {
		return true
	}
	open := 0
	for _, f := range p.flows {
		if f.open > 0 {
			open++
		}
	}
	return open == 1 && p.breaker.status.State == BreakerClosed && now.UnixNano()-p.heard.Load() < int64(p.cfg.AttemptTimeout)/2
}

// excuse ends a call that the breaker is not to count. Its records stay with the
// producer. Called locked.
func (p *Publisher) excuse(c *call) {
	p.calls = slices.DeleteFunc(p.calls, func(o *call) bool { return o == c })
	if p.call == c {
		p.call = nil
	}
	if c.done != nil {
		c.done(errMerged)
		c.done = nil
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// watch answers to what no record tells: time that passes, and connections
// that fail. It ends when the publisher is closed.
func (p *Publisher) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var failed error
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
		case <-p.nudged:
		case failed = <-p.broken:
		}
		p.mu.Lock()
		if failed != nil {
			p.strike(nil, failed)
		}
		wait := p.look()
		p.mu.Unlock()
		timer.Reset(wait)
	}
}

// nudge makes watch look again.
func (p *Publisher) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// look fails calls that have no answer, gives up what was tried often enough,
// and answers to what the breaker did. It returns when to look again. Called locked.
func (p *Publisher) look() time.Duration {
	now := time.Now()
	p.breaker.Look()
	for _, c := range p.calls {
		switch {
		case now.Sub(c.began) < p.cfg.AttemptTimeout:
			continue
		case p.answersOthers(c, now):
			p.excuse(c)
		case now.Sub(checkpoint.Later(c.began, p.acked)) >= p.cfg.AttemptTimeout:
			p.strike(c, errNoAnswer)
		default:
			continue
		}
		break // the list has changed
	}
	p.checkFlows(now)
	p.answerBreaker()
	p.pumpRefused()
	switch {
	case len(p.calls) > 0:
		return watchEvery
	case p.breaker.status.State == BreakerOpen:
		return p.breaker.reopensIn()
	case p.breaker.status.State == BreakerHalfOpen:
		return watchEvery
	case len(p.flows) > 0:
		return p.cfg.AttemptTimeout / 2
	default:
		return time.Hour // a call nudges
	}
}

// pumpRefused tries the lanes again that admit sent away. Called locked.
func (p *Publisher) pumpRefused() {
	if p.breaker.status.State != BreakerClosed || len(p.refused) == 0 {
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
