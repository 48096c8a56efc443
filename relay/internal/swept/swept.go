package swept

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// Cause is the reason why the sweep reader found an event before the tail reader.
type Cause uint8

const (
	// TailOff: the tail reader is off.
	TailOff Cause = iota
	// beforeStart: the event was written before the range of the tail reader, which
	// begins a confidence window before its start.
	beforeStart
	// HeldBack: the tail reader waited for room, or for the sweep reader.
	HeldBack
	// Failing: the tail reader could not read.
	Failing
	// Left: the tail reader could not determine the earlier events of the aggregate.
	Left
	// Late: the row became visible after the tail reader had passed it. Causes: a
	// batchlog replay, a conditional write that was decided late, a slow replica, a
	// clock that is behind.
	Late

	// Causes is the number of causes.
	Causes
)

// String returns the metric label of the cause.
func (c Cause) String() string {
	return [...]string{"tail_off", "before_start", "held_back", "failing", "left", "late"}[c]
}

// maxLeft bounds the aggregates recorded as left to the sweep reader.
const maxLeft = 10_000

// Tracker records the activity of the tail reader, to determine the cause of an event that
// the sweep reader finds first. It is safe for concurrent use.
type Tracker struct {
	off    bool
	window int64 // in microseconds
	// The times are in microseconds, 0 for never.
	began, waited, failing, leftAt atomic.Int64

	mu struct {
		sync.Mutex
		// left contains the aggregates with an event that the tail reader left to the sweep
		// reader.
		left map[gocql.UUID]struct{}
	}
}

// New returns a tracker. off means that no tail reader runs; window is the confidence
// window.
func New(off bool, window time.Duration) *Tracker {
	t := &Tracker{off: off, window: window.Microseconds()}
	t.mu.left = make(map[gocql.UUID]struct{})
	return t
}

// Began records that the tail reader read the log; only the first call has an effect.
func (t *Tracker) Began(now time.Time) { t.began.CompareAndSwap(0, now.UnixMicro()) }

// Waited records that the tail reader waits for the sweep reader.
func (t *Tracker) Waited(now time.Time) { t.waited.Store(now.UnixMicro()) }

// Failed records that the tail reader could not read.
func (t *Tracker) Failed(now time.Time) { t.failing.Store(now.UnixMicro()) }

// Leave records that the tail reader leaves an event of the aggregate to the sweep reader.
func (t *Tracker) Leave(aggregate gocql.UUID) {
	t.leftAt.Store(time.Now().UnixMicro())
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.left) >= maxLeft {
		clear(t.mu.left)
	}
	t.mu.left[aggregate] = struct{}{}
}

// SweptFirst returns the write time up to which the sweep reader may find rows before the tail
// reader, by decision of the latter: until it began, waited for room or left an event. It is in the
// far future before the tail reader has read.
func (t *Tracker) SweptFirst() time.Time {
	began := t.began.Load()
	if began == 0 {
		return time.UnixMicro(math.MaxInt64)
	}
	return time.UnixMicro(max(began-t.window, t.waited.Load(), t.leftAt.Load()))
}

// takeLeft reports whether an event of the aggregate was left, and forgets it.
func (t *Tracker) takeLeft(aggregate gocql.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, left := t.mu.left[aggregate]
	delete(t.mu.left, aggregate)
	return left
}

// Cause returns why the sweep reader found an event of the aggregate first; written is the
// write time of its row in microseconds.
func (t *Tracker) Cause(aggregate gocql.UUID, written int64) Cause {
	if t.off {
		return TailOff
	}
	began := t.began.Load()
	switch left := t.takeLeft(aggregate); {
	case left:
		return Left
	case began == 0 || written < began-t.window:
		return beforeStart
	case written <= t.waited.Load():
		return HeldBack
	case written <= t.failing.Load():
		return Failing
	default:
		return Late
	}
}

// NewMetrics registers the counters of events by cause.
func NewMetrics(reg prometheus.Registerer) (out [Causes]prometheus.Counter) {
	swept := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_events_swept_total",
		Help: "Events that the sweep reader found before the tail reader, by cause. The tail reader is off (tail_off), started later (before_start), waited for room or for the sweep reader (held_back), " +
			"could not read (failing), could not determine earlier events of the aggregate (left), or had passed the row before it became visible (late).",
	}, []string{"cause"})
	for c := range Causes {
		out[c] = swept.WithLabelValues(c.String())
	}
	reg.MustRegister(swept)
	return out
}
