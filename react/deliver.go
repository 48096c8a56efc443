package react

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// errLeft marks an abandoned attempt: its outcome is unknown.
var errLeft = errors.New("attempt abandoned")

// maxError bounds the stored text of an error, in bytes.
const maxError = 2000

// deliver retries a job until it is finished. False means that it is not: the
// partition was reassigned, or the runner stops.
func (r *runner) deliver(p *partition, j *job) (done bool) {
	done, ok := r.known(p.ctx, j)
	if done || !ok {
		return done
	}
	if j.err != nil {
		return r.fail(j, j.err)
	}
	for {
		if !sleepUntil(p.ctx, j.NextAttempt) {
			return false
		}
		err := r.attempt(p, j)
		if errors.Is(err, errLeft) {
			return false
		}
		j.Attempts++
		r.tried(j, err)
		if err == nil {
			j.State, j.NextAttempt = delivery.Delivered, time.Time{}
			if !r.save(r.work, j) {
				return false
			}
			r.metrics.delivered.Inc()
			return true
		}
		r.metrics.errors.Inc()
		if notify.IsPermanent(err) || j.Attempts >= r.rule.Attempts {
			return r.fail(j, err)
		}
		pause := retry.Backoff(r.rule.Backoff, r.rule.MaxBackoff, j.Attempts)
		if asked := notify.WaitOf(err); asked > 0 {
			pause = min(asked, r.rule.MaxBackoff)
		}
		j.Error, j.NextAttempt = errorText(err), time.Now().Add(pause)
		r.log.Debug("delivery failed; retrying", "event_id", j.EventID, "attempt", j.Attempts, "wait", pause, "err", err)
		if !r.save(p.ctx, j) {
			return false
		}
	}
}

// tried records an attempt in the delivery.
func (r *runner) tried(j *job, err error) {
	text := ""
	if err != nil {
		text = errorText(err)
		r.failing(text)
	}
	j.Tried(j.began, time.Since(j.began), text)
}

// known reads the stored delivery, of this process before a restart or of
// another process. done reports that it is finished; ok that it must be
// attempted.
func (r *runner) known(ctx context.Context, j *job) (done, ok bool) {
	var was *delivery.Delivery
	ok = r.patiently(ctx, func() (err error) {
		was, err = r.cfg.Deliveries.Read(ctx, j.ID)
		if errors.Is(err, delivery.ErrNotFound) {
			return nil
		}
		return err
	})
	switch {
	case !ok:
		return false, false
	case was == nil:
		return j.place == nil, true // the requested delivery has expired
	case was.State != delivery.Pending:
		return true, true
	}
	*j.Delivery = *was
	j.Plugin = r.rule.To // it may be another than then
	return false, true
}

// fail ends a delivery with a permanent error.
func (r *runner) fail(j *job, err error) bool {
	j.State, j.Error, j.NextAttempt = delivery.Failed, errorText(err), time.Time{}
	if !r.save(r.work, j) {
		return false
	}
	r.metrics.failed.Inc()
	r.log.Error("an event was not delivered", "event_id", j.EventID, "delivery", j.ID, "topic", j.Topic, "attempt", j.Attempts, "err", j.Error)
	return true
}

// errorText returns the stored form of an error.
func errorText(err error) string {
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError], "") + "…"
	}
	return s
}

// save writes the delivery, with retries. False means that ctx ended first.
func (r *runner) save(ctx context.Context, j *job) bool {
	return r.patiently(ctx, func() error { return r.cfg.Deliveries.Save(ctx, j.Delivery) })
}

// patiently retries an operation of the database until it succeeds. False means
// that ctx ended first.
func (r *runner) patiently(ctx context.Context, do func() error) bool {
	for try := 1; ctx.Err() == nil; try++ {
		err := do()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.metrics.unsaved.Inc()
		if try == 1 {
			r.log.Warn("failed to read or write deliveries; retrying", "err", err)
		}
		if retry.Wait(ctx, retry.Backoff(100*time.Millisecond, 10*time.Second, try)) != nil {
			return false
		}
	}
	return false
}

// sleepUntil waits; false means that ctx ended first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	if ctx.Err() != nil {
		return false
	}
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	return retry.Wait(ctx, d) == nil
}

// attempt calls the plugin when there is a place for it. The place is free when
// the call returns, however long that takes, so a plugin that hangs blocks only
// places of its own rule.
func (r *runner) attempt(p *partition, j *job) error {
	select {
	case r.slots <- struct{}{}:
	case <-p.ctx.Done():
		return errLeft
	}
	ctx, cancel := context.WithTimeout(r.work, r.rule.Timeout)
	j.began = time.Now()
	done := make(chan error, 1)
	e := Event{Event: j.event, Rule: r.rule.Name, DeliveryID: j.ID.String(), Attempt: j.Attempts + 1}
	go func() {
		defer cancel()
		defer func() { <-r.slots }()
		defer func() {
			if v := recover(); v != nil {
				r.log.Error("the plugin panicked", "event_id", j.EventID, "err", v, "stack", string(debug.Stack()))
				done <- fmt.Errorf("the plugin panicked: %v", v)
			}
		}()
		done <- r.rule.plugin.Process(ctx, e)
	}()
	ended := func(err error) error {
		r.metrics.seconds.Observe(time.Since(j.began).Seconds())
		if err != nil && r.work.Err() != nil {
			return errLeft // it may be that of the stop
		}
		return err
	}
	select {
	case err := <-done:
		return ended(err)
	case <-ctx.Done():
	}
	// A plugin that returns with its context gets time to return its error.
	select {
	case err := <-done:
		return ended(err)
	case <-r.work.Done():
		return errLeft
	case <-time.After(r.rule.Timeout/10 + 10*time.Millisecond):
	}
	return r.hangs(p, j, done, ended)
}

// hangs waits for a call that does not return, and logs it.
func (r *runner) hangs(p *partition, j *job, done <-chan error, ended func(error) error) error {
	r.metrics.stuck.Inc()
	defer r.metrics.stuck.Dec()
	j.Error = fmt.Sprintf("attempt %d has not returned after %s", j.Attempts+1, r.rule.Timeout)
	r.log.Warn("plugin hangs; its place is blocked until it returns", "event_id", j.EventID, "delivery", j.ID)
	r.save(p.ctx, j)
	select {
	case err := <-done:
		return ended(err)
	case <-r.work.Done():
	case <-p.ctx.Done():
	}
	return errLeft
}
