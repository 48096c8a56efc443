package publish

import (
	"errors"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

const (
	// callFor is the period in which records join one call of the breaker, and in
	// which failures count as one: a broker that becomes unavailable fails all
	// outstanding records at the same moment.
	callFor = 50 * time.Millisecond
	// watchEvery is the interval at which outstanding calls are checked.
	watchEvery = 100 * time.Millisecond
)

// call is the unit that the breaker counts: the records that were handed to the
// producer within callFor, until all of them are acknowledged. All outstanding calls
// become one failed call when the broker refuses connections, when a connection with
// an outstanding request is lost, or when nothing is acknowledged for AttemptTimeout.
// The unacknowledged records are then the next attempt of that call. They stay with
// the producer, which retries by itself and keeps what the broker may have written.
type call struct {
	began   time.Time
	attempt int
	open    int         // outstanding records
	done    func(error) // nil if the breaker does not count it
	into    *call       // the call that it was merged into
}

func (c *call) root() *call {
	for c.into != nil {
		c = c.into
	}
	return c
}

// admit returns the call that a record sent now belongs to, or nil if the breaker
// admits none. After a failure, until the broker answers, it admits one record at a
// time: an unsent event can become a dead letter when the breaker opens, a sent one
// has to wait for the broker. Called locked.
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

// answered records that the producer returned a record of the call. err is nil if the
// broker answered, also with a refusal, and errMerged if the record was not sent.
// Called locked.
func (p *Publisher) answered(c *call, err error) {
	c = c.root()
	if err != nil && !errors.Is(err, errMerged) {
		p.strike(c, err)
		err = errMerged // strike has counted the failure
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

// strike merges all outstanding calls into c and counts one failure; nil means the
// oldest call. Called locked.
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
		case c.done == nil: // the breaker has counted c, but not other
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
		// All attempts are counted; the remaining records may be a problem of one topic.
		p.calls = p.calls[:0]
	} else if p.breaker.status.State == BreakerClosed {
		c.done, _ = p.breaker.Allow()
	}
	p.nudge()
}

// answersOthers reports whether the broker works for records outside the call, so that
// only single partitions, which flow.go handles, delay it. This is the case if the
// broker acknowledged a record more than half of AttemptTimeout after the call began,
// or if it answers requests and only one partition has outstanding records. Called
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

// excuse ends a call without counting it. Its records stay with the producer. Called
// locked.
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

// watch handles timeouts and failed connections until the publisher is closed.
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

// nudge makes watch run look immediately. It does not block.
func (p *Publisher) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// look fails calls without an answer, handles stalled partitions and breaker
// transitions, and retries the lanes that admit refused. It returns the time until
// the next check. Called locked.
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
		return time.Hour // a new call wakes watch
	}
}

// pumpRefused retries the lanes that admit refused. Called locked.
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
