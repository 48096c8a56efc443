package publish

import (
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// SweptCause is the reason why the sweep reader found an event before the tail reader.
type SweptCause uint8

const (
	// SweptTailOff: the tail reader is off.
	SweptTailOff SweptCause = iota
	// sweptBeforeStart: the event was written before the range of the tail reader, which
	// begins a confidence window before its start.
	sweptBeforeStart
	// SweptHeldBack: the tail reader waited for room, or for the sweep reader.
	SweptHeldBack
	// SweptFailing: the tail reader could not read.
	SweptFailing
	// SweptLeft: the tail reader could not determine the earlier events of the aggregate.
	SweptLeft
	// SweptLate: the row became visible after the tail reader had passed it. Causes: a
	// batchlog replay, a conditional write that was decided late, a slow replica, a
	// clock that is behind.
	SweptLate

	SweptCauses
)

// String returns the metric label of the cause.
func (c SweptCause) String() string {
	return [...]string{"tail_off", "before_start", "held_back", "failing", "left", "late"}[c]
}

// maxLeft bounds the aggregates recorded as left to the sweep reader.
const maxLeft = 10_000

// tailTrack records the activity of the tail reader, to determine the cause of an event
// that the sweep reader finds first. Its times are in microseconds, 0 for never; they
// are safe for concurrent use.
type tailTrack struct {
	off                    bool
	window                 int64
	began, waited, failing atomic.Int64
	// left contains the aggregates with an event that the tail reader left to the sweep
	// reader; the publisher's lock guards it.
	left map[gocql.UUID]struct{}
}

// TailBegan, TailWaited and TailFailed record the activity of the tail reader, from
// which the cause of events that the sweep reader finds first is determined.
func (p *Publisher) TailBegan(now time.Time)  { p.tailed.began.CompareAndSwap(0, now.UnixMicro()) }
func (p *Publisher) TailWaited(now time.Time) { p.tailed.waited.Store(now.UnixMicro()) }
func (p *Publisher) TailFailed(now time.Time) { p.tailed.failing.Store(now.UnixMicro()) }

// Leave records that the tail reader leaves an event of the aggregate to the sweep reader.
func (p *Publisher) Leave(aggregate gocql.UUID) {
	p.Metrics.TailLeft.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tailed.left) >= maxLeft {
		clear(p.tailed.left)
	}
	p.tailed.left[aggregate] = struct{}{}
}

// swept returns why the sweep reader found the event first. Called locked.
func (t *tailTrack) swept(o *Offer) SweptCause {
	began := t.began.Load()
	_, left := t.left[o.Event.AggregateID]
	delete(t.left, o.Event.AggregateID)
	switch {
	case t.off:
		return SweptTailOff
	case left:
		return SweptLeft
	case began == 0 || o.Written < began-t.window:
		return sweptBeforeStart
	case o.Written <= t.waited.Load():
		return SweptHeldBack
	case o.Written <= t.failing.Load():
		return SweptFailing
	default:
		return SweptLate
	}
}

func newSwept(reg prometheus.Registerer) (out [SweptCauses]prometheus.Counter) {
	swept := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_events_swept_total",
		Help: "Events that the sweep reader found before the tail reader, by cause. The tail reader is off (tail_off), started later (before_start), waited for room or for the sweep reader (held_back), " +
			"could not read (failing), could not determine earlier events of the aggregate (left), or had passed the row before it became visible (late).",
	}, []string{"cause"})
	for c := range SweptCauses {
		out[c] = swept.WithLabelValues(c.String())
	}
	reg.MustRegister(swept)
	return out
}
