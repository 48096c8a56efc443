package share

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"
)

// Hold is a shard that this instance owns. Its methods are safe for concurrent use.
type Hold struct {
	shard  int
	since  time.Time
	lease  *lease
	cancel context.CancelCauseFunc
	lost   atomic.Pointer[error]
	fenced atomic.Bool   // the end of the lease was logged
	done   chan struct{} // closed when the function has returned
}

// Shard returns the number of the shard, from 0.
func (h *Hold) Shard() int { return h.shard }

// Check returns nil as long as no other instance can own the shard, and ErrLost ever
// after. Call it right before each write that only the owner may make; it costs a read of
// the clock.
//
// While a shard is drained for another instance, Check returns nil until the function has
// returned.
func (h *Hold) Check() error {
	if err := h.lost.Load(); err != nil {
		return *err
	}
	if h.lease.over() {
		h.lose(errFenced)
		return *h.lost.Load()
	}
	return nil
}

// errFenced is the error of a shard whose lease ended.
var errFenced = fmt.Errorf("%w: the broker has acknowledged no heartbeat for too long", ErrLost)

// lose ends the hold immediately and reports whether this call was the first.
func (h *Hold) lose(why error) bool {
	first := h.lost.CompareAndSwap(nil, &why)
	h.cancel(*h.lost.Load())
	return first
}

// forEver disables the supervisor's stop timeout: its callers limit the wait.
const forEver = 100 * 365 * 24 * time.Hour

// hold runs the function until ctx ends and restarts it after errors.
func (m *Member) hold(ctx context.Context, h *Hold) {
	log := m.log.With("shard", h.shard)
	sup := suture.New(fmt.Sprintf("shard %d", h.shard), suture.Spec{
		EventHook: func(e suture.Event) {
			if e, ok := e.(suture.EventServiceTerminate); ok && ctx.Err() == nil {
				m.metrics.restarts.Inc()
				log.Warn("work on shard ended; restarting", "immediate", e.Restarting, "wait", m.cfg.RestartDelay, "err", e.Err)
			}
		},
		FailureThreshold:  1,
		FailureBackoff:    m.cfg.RestartDelay,
		Timeout:           forEver,
		PassThroughPanics: true,
	})
	sup.Add(&work{m, h})
	_ = sup.Serve(ctx) // returns when ctx ends
}

// work is a function under supervision.
type work struct {
	m *Member
	h *Hold
}

// Serve runs the function once.
func (w *work) Serve(ctx context.Context) error {
	err := w.m.work(ctx, w.h)
	if ctx.Err() == nil && err != nil && w.m.cfg.Fatal(err) {
		w.m.fail(err)
		return suture.ErrDoNotRestart
	}
	if err == nil {
		err = errReturned
	}
	return err
}

var errReturned = errors.New("returned without an error")

// String returns the name of the service.
func (w *work) String() string { return fmt.Sprintf("shard %d", w.h.shard) }
