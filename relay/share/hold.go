package share

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"
)

// Hold is a shard while this instance owns it. Its methods are safe for concurrent
// use.
type Hold struct {
	shard  int
	since  time.Time
	lease  *lease
	cancel context.CancelCauseFunc
	lost   atomic.Pointer[error]
	fenced atomic.Bool   // that the lease was over was said
	done   chan struct{} // closed when the function has returned
}

// Shard is its number, from 0.
func (h *Hold) Shard() int { return h.shard }

// Check returns nil as long as no other instance can own the shard, and ErrLost
// from then on, for ever. It is to be asked right before something is written that
// only the owner may write; it costs a look at the clock.
//
// While a shard is given up in peace, Check goes on returning nil until the function
// has returned.
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

// errFenced is why a shard is lost before anybody said so.
var errFenced = fmt.Errorf("%w: the broker has acknowledged no heartbeat for too long", ErrLost)

// lose ends the hold at once, and says whether it is the first to.
func (h *Hold) lose(why error) bool {
	first := h.lost.CompareAndSwap(nil, &why)
	h.cancel(*h.lost.Load())
	return first
}

// forEver is as long as a supervisor may wait: who waits for it bounds that.
const forEver = 100 * 365 * 24 * time.Hour

// hold runs the function until ctx ends, again and again if it fails.
func (m *Member) hold(ctx context.Context, h *Hold) {
	log := m.log.With("shard", h.shard)
	sup := suture.New(fmt.Sprintf("shard %d", h.shard), suture.Spec{
		EventHook: func(e suture.Event) {
			if e, ok := e.(suture.EventServiceTerminate); ok && ctx.Err() == nil {
				m.metrics.restarts.Inc()
				log.Warn("work on a shard ended; it is started again", "at_once", e.Restarting, "wait", m.cfg.RestartDelay, "err", e.Err)
			}
		},
		FailureThreshold:  1,
		FailureBackoff:    m.cfg.RestartDelay,
		Timeout:           forEver,
		PassThroughPanics: true,
	})
	sup.Add(&work{m, h})
	_ = sup.Serve(ctx) // it ends when ctx does
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

var errReturned = errors.New("it returned by itself")

// String names the service.
func (w *work) String() string { return fmt.Sprintf("shard %d", w.h.shard) }
