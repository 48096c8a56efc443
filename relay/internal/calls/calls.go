package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

const (
	// joinFor is the period in which records join one call of the breaker, and in
	// which failures count as one: a broker that becomes unavailable fails all
	// outstanding records at the same moment.
	joinFor = 50 * time.Millisecond
	// checkEvery is the interval at which open calls are checked.
	checkEvery = 100 * time.Millisecond
)

var (
	// ErrNoAnswer is the error of an attempt that the broker did not answer in time.
	ErrNoAnswer = errors.New("the broker has not acknowledged in time")
	// ErrUncounted ends a call that was merged into another one, or a record that was not
	// sent. It counts neither as a success nor as a failure.
	ErrUncounted = fmt.Errorf("counted with another call: %w", circuit.ErrUncounted)
	// ErrRefused is the result of a record that the broker refused. The broker answers, which
	// a closed breaker counts as a success. It proves nothing to a half-open one: other
	// records may not be taken.
	ErrRefused = errors.New("the broker refused the record")
)

// Config configures Calls. All fields are required.
type Config struct {
	Circuit circuit.Config
	// AttemptTimeout is the time after which an unanswered call failed.
	AttemptTimeout time.Duration
	// Attempts is the number of attempts of a call that the breaker counts.
	Attempts int
	Logger   *slog.Logger
	Metrics  *circuit.Metrics
}

// Call is the unit that the breaker counts: the records that were passed to the
// producer within joinFor, until all of them are returned. All open calls become one
// failed call when the broker refuses connections, when a connection with an outstanding
// request is lost, or when nothing is acknowledged for AttemptTimeout. The
// unacknowledged records are then the next attempt of that call. They stay with the
// producer, which retries by itself and keeps records that the broker may have written.
type Call struct {
	began   time.Time
	attempt int
	open    int         // outstanding records
	done    func(error) // nil if the breaker does not count it
	into    *Call       // the call that it was merged into
	probe   bool        // the half-open breaker admitted it
}

func (c *Call) root() *Call {
	for c.into != nil {
		c = c.into
	}
	return c
}

// Calls admits calls and counts their results. The breaker opens after Circuit.Failures
// consecutive failures, or at a failure rate of Circuit.Rate among at least
// Circuit.MinCalls calls of the last Circuit.Window. After Circuit.Open it is half-open
// and admits Circuit.Probes calls. It closes when that number of records was acknowledged,
// also of records that were sent before. It opens again when a call fails, or when no record
// is acknowledged for AttemptTimeout. Answers to other requests prove nothing, unless nothing
// waits to be published.
type Calls struct {
	cfg      Config
	breaker  *circuit.Breaker
	state    atomic.Uint32 // of mu.status
	answered atomic.Int64  // when a broker last answered a request, in Unix nanoseconds
	acked    atomic.Int64  // when a record was last acknowledged, in Unix nanoseconds
	woken    chan struct{}
	failed   chan error // connections that failed

	mu struct {
		sync.Mutex
		status   circuit.Status
		changed  bool    // the state changed, and TakeChange has not returned it yet
		joinable *Call   // the call that records join
		open     []*Call // calls with outstanding records
		failedAt time.Time
		failing  bool
		pinging  bool
		waiting  int // callers of Do
	}
}

// New returns a closed breaker without calls.
func New(cfg Config) *Calls {
	c := &Calls{cfg: cfg, woken: make(chan struct{}, 1), failed: make(chan error, 1)}
	c.state.Store(uint32(circuit.Closed))
	// The breaker calls it from Allow, Look and done, which are called with c.mu held.
	c.breaker = circuit.New(cfg.Circuit, cfg.Logger, cfg.Metrics, func(s circuit.Status) {
		c.mu.status, c.mu.changed = s, true
		c.state.Store(uint32(s.State))
	})
	return c
}

// State returns the state of the breaker.
func (c *Calls) State() circuit.State { return circuit.State(c.state.Load()) }

// Status returns the state of the breaker and its reason.
func (c *Calls) Status() circuit.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.status
}

// Wakes returns a channel that receives when Check must be called before its time.
func (c *Calls) Wakes() <-chan struct{} { return c.woken }

// Wake makes the channel of Wakes receive. It does not block.
func (c *Calls) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Admit returns the call that a record sent now, the current time, belongs to, or nil if
// the breaker admits none. After a failure, until the broker answers, it admits one record
// at a time: an unsent event can become a dead letter when the breaker opens, a sent one
// has to wait for the broker. The caller passes the result of the record to Answered.
func (c *Calls) Admit(now time.Time) *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.admitLocked(now)
	if c.mu.changed {
		c.Wake()
	}
	return call
}

func (c *Calls) admitLocked(now time.Time) *Call {
	if c.mu.failing && slices.ContainsFunc(c.mu.open, func(o *Call) bool { return o.attempt == 1 && o.open > 0 }) {
		return nil
	}
	if j := c.mu.joinable; j != nil && now.Sub(j.began) < joinFor && j.attempt == 1 && j.into == nil && j.open > 0 && c.mu.status.State == circuit.Closed {
		j.open++
		return j
	}
	c.mu.joinable = nil
	done, err := c.breaker.Allow()
	if err != nil {
		return nil
	}
	call := &Call{began: now, attempt: 1, open: 1, done: done, probe: c.mu.status.State == circuit.HalfOpen}
	if len(c.mu.open) == 0 {
		c.Wake()
	}
	c.mu.open = append(c.mu.open, call)
	if c.mu.status.State == circuit.Closed && !c.mu.failing {
		c.mu.joinable = call
	}
	return call
}

// Attempt returns the number of the attempt that the call is in.
func (c *Calls) Attempt(call *Call) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.root().attempt
}

// Acknowledged records that a broker acknowledged a record now.
func (c *Calls) Acknowledged(now time.Time) { c.acked.Store(now.UnixNano()) }

// Responded records that a broker answered a request. It takes no lock.
func (c *Calls) Responded() { c.answered.Store(time.Now().UnixNano()) }

// ConnectionFailed makes the next Check count a failure of the open calls. It takes no
// lock and does not block.
func (c *Calls) ConnectionFailed(err error) {
	select {
	case c.failed <- err:
	default: // one report is enough
	}
	c.Wake()
}

// Answered records that a record of the call was returned. err is nil if the broker
// acknowledged it, ErrRefused if the broker refused it, and ErrUncounted if it was not sent.
func (c *Calls) Answered(call *Call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answeredLocked(call, err)
	if c.mu.changed {
		c.Wake()
	}
}

func (c *Calls) answeredLocked(call *Call, err error) {
	call = call.root()
	halfOpen := c.mu.status.State == circuit.HalfOpen
	switch {
	case errors.Is(err, ErrRefused):
		err = nil
		if halfOpen {
			err = ErrUncounted
		}
	case err == nil && halfOpen && !call.probe:
		if done, denied := c.breaker.Allow(); denied == nil {
			done(nil)
		}
	}
	if err != nil && !errors.Is(err, ErrUncounted) {
		c.failLocked(call, err)
		err = ErrUncounted // failLocked has counted the failure
	}
	if err == nil && c.mu.failing {
		c.mu.failing = false
		c.Wake()
	}
	if call.open--; call.open > 0 {
		return
	}
	if i := slices.Index(c.mu.open, call); i >= 0 {
		c.mu.open = slices.Delete(c.mu.open, i, i+1)
	}
	if c.mu.joinable == call {
		c.mu.joinable = nil
	}
	if call.done != nil {
		call.done(err)
		call.done = nil
	}
}

// failLocked merges all open calls into call and counts one failure; nil means the
// oldest call.
func (c *Calls) failLocked(call *Call, cause error) {
	if len(c.mu.open) == 0 {
		return
	}
	if call == nil {
		call = c.mu.open[0]
	}
	now := time.Now()
	for _, other := range c.mu.open {
		if other == call {
			continue
		}
		switch {
		case other.done == nil:
		case call.done == nil: // the breaker has counted call, but not other
			call.done = other.done
		default:
			other.done(ErrUncounted)
		}
		call.open += other.open
		if other.began.Before(call.began) {
			call.began = other.began
		}
		call.attempt = max(call.attempt, other.attempt)
		other.into, other.done = call, nil
	}
	c.mu.open = append(c.mu.open[:0], call)
	c.mu.joinable = nil
	if now.Sub(c.mu.failedAt) < joinFor {
		return // the same failure
	}
	c.mu.failedAt, c.mu.failing = now, true
	if call.done != nil {
		call.done(cause)
		call.done = nil
	}
	call.began, call.attempt = now, call.attempt+1
	if call.attempt > c.cfg.Attempts {
		// All attempts are counted; the remaining records may be a problem of one topic.
		c.mu.open = c.mu.open[:0]
	} else if c.mu.status.State == circuit.Closed {
		call.done, _ = c.breaker.Allow()
	}
	c.Wake()
}

// Check fails calls whose connection was lost or that are not answered in time, and makes
// an open breaker half-open when its time has passed. busy is the number of partitions
// with outstanding records.
func (c *Calls) Check(now time.Time, busy int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case err := <-c.failed:
		c.failLocked(nil, err)
	default:
	}
	c.breaker.Look()
	if s := c.mu.status; s.State == circuit.HalfOpen && busy > 0 && now.UnixNano()-max(s.Since.UnixNano(), c.acked.Load()) >= int64(c.cfg.AttemptTimeout) {
		if done, denied := c.breaker.Allow(); denied == nil { // else its probes decide
			done(ErrNoAnswer)
		}
	}
	for _, call := range c.mu.open {
		switch {
		case now.Sub(call.began) < c.cfg.AttemptTimeout:
			continue
		case c.answersOthersLocked(call, now, busy):
			c.dropLocked(call)
		case now.UnixNano()-max(call.began.UnixNano(), c.acked.Load()) >= int64(c.cfg.AttemptTimeout):
			c.failLocked(call, ErrNoAnswer)
		default:
			continue
		}
		break // the list has changed
	}
}

// answersOthersLocked reports whether the broker works for records outside the call, so
// that only single partitions delay it. This is the case if the broker acknowledged a
// record more than half of AttemptTimeout after the call began, or if it answers requests
// and only one partition has outstanding records.
func (c *Calls) answersOthersLocked(call *Call, now time.Time, busy int) bool {
	if c.acked.Load()-call.began.UnixNano() > int64(c.cfg.AttemptTimeout)/2 {
		return true
	}
	return busy == 1 && c.mu.status.State == circuit.Closed && now.UnixNano()-c.answered.Load() < int64(c.cfg.AttemptTimeout)/2
}

// dropLocked ends a call without counting it. Its records stay with the producer.
func (c *Calls) dropLocked(call *Call) {
	c.mu.open = slices.DeleteFunc(c.mu.open, func(o *Call) bool { return o == call })
	if c.mu.joinable == call {
		c.mu.joinable = nil
	}
	if call.done != nil {
		call.done(ErrUncounted)
		call.done = nil
	}
}

// Unprobed reports whether the breaker has been half-open for AttemptTimeout, and has no open call.
func (c *Calls) Unprobed(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.status
	return s.State == circuit.HalfOpen && len(c.mu.open) == 0 && now.Sub(s.Since) >= c.cfg.AttemptTimeout
}

// TakeChange returns the state of the breaker, and whether it changed since the last
// call of TakeChange.
func (c *Calls) TakeChange() (state circuit.State, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, c.mu.changed = c.mu.changed, false
	if changed && c.mu.status.State == circuit.Open {
		c.mu.joinable = nil
	}
	return c.mu.status.State, changed
}

// NextCheck returns the time until the next Check. busy reports whether partitions have
// outstanding records or waiting events.
func (c *Calls) NextCheck(busy bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.mu.open) > 0:
		return checkEvery
	case c.mu.status.State == circuit.Open:
		return c.breaker.Left() + time.Millisecond
	case c.mu.status.State == circuit.HalfOpen:
		return checkEvery
	case busy:
		return c.cfg.AttemptTimeout / 2
	default:
		return time.Hour // a new call wakes the caller
	}
}

// LastFailure returns when a call last failed, zero if none has, and whether none was
// answered since.
func (c *Calls) LastFailure() (at time.Time, failing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.failedAt, c.mu.failing
}

// BeginPing admits a ping of a half-open breaker that has no open calls. It returns nil if
// no ping is needed or the breaker does not admit one. The caller passes the result to
// EndPing. It does not call BeginPing while an event or a dead letter waits, whose record is
// the proof: a broker may answer pings and acknowledge nothing.
func (c *Calls) BeginPing() *Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.open) > 0 || c.mu.pinging || c.mu.waiting > 0 {
		return nil // a call of Do probes the broker
	}
	call := c.admitLocked(time.Now())
	c.mu.pinging = call != nil
	return call
}

// EndPing records the result of a ping.
func (c *Calls) EndPing(call *Call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.pinging = false
	c.answeredLocked(call, err)
	c.Wake()
}

// Do runs f as a call, once the breaker admits it, and returns the error of f. Only a
// missing answer counts, as a failure; an error returned by the broker is an answer. One
// topic that cannot be created therefore does not open the breaker, and one that was looked up
// does not close it. f is called without locks.
func (c *Calls) Do(ctx context.Context, f func() error) error {
	count := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.waiting += n
	}
	count(1)
	defer count(-1)
	for {
		call := c.Admit(time.Now())
		if call == nil {
			if err := retry.Wait(ctx, max(c.cfg.Circuit.Open/20, 50*time.Millisecond)); err != nil {
				return err
			}
			continue
		}
		err := f()
		_, answer := errors.AsType[*kerr.Error](err)
		switch {
		case err == nil, answer, failure.Classify(err) == failure.Permanent, failure.Classify(err) == failure.Fatal:
			c.Answered(call, ErrUncounted)
		case failure.Classify(err) == failure.Stopped:
			c.Answered(call, ErrUncounted)
		default:
			c.Answered(call, err)
		}
		c.Wake()
		return err
	}
}
