package publish

import (
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// SweptCause is why the sweep handed on an event first, and not the tail.
type SweptCause uint8

const (
	// SweptTailOff: there is no tail.
	SweptTailOff SweptCause = iota
	// sweptBeforeStart: it was written longer before the tail began than that reads back.
	sweptBeforeStart
	// SweptHeldBack: the tail waited for room, or for the sweep.
	SweptHeldBack
	// SweptFailing: the tail could not read.
	SweptFailing
	// SweptLeft: the tail was not sure of what is before it in its aggregate.
	SweptLeft
	// SweptLate: the tail had read on when the row became visible. A batch was
	// replayed from the batchlog, a conditional write decided late, a replica slow, a
	// clock behind.
	SweptLate

	SweptCauses
)

// String is the cause as the metric's label has it.
func (c SweptCause) String() string {
	return [...]string{"tail_off", "before_start", "held_back", "failing", "left", "late"}[c]
}

// maxLeft bounds the aggregates that are remembered as left to the sweep.
const maxLeft = 10_000

// tailTrack is what is known of the tail when the sweep comes upon an event that
// did not go out. Its times are in microseconds, 0 for never; they are safe for
// concurrent use.
type tailTrack struct {
	off                    bool
	window                 int64
	began, waited, failing atomic.Int64
	// left are aggregates with an event that the tail left to the sweep; the
	// publisher's lock guards them.
	left map[gocql.UUID]struct{}
}

// TailBegan, tailWaited and tailFailed note what the tail reader does, so that the cause
// is known for events that the sweep reader finds first.
func (p *Publisher) TailBegan(now time.Time)  { p.tailed.began.CompareAndSwap(0, now.UnixMicro()) }
func (p *Publisher) TailWaited(now time.Time) { p.tailed.waited.Store(now.UnixMicro()) }
func (p *Publisher) TailFailed(now time.Time) { p.tailed.failing.Store(now.UnixMicro()) }

// Leave notes that the tail leaves an event of the aggregate to the sweep.
func (p *Publisher) Leave(aggregate gocql.UUID) {
	p.Metrics.TailLeft.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tailed.left) >= maxLeft {
		clear(p.tailed.left)
	}
	p.tailed.left[aggregate] = struct{}{}
}

// swept says why the sweep came upon the event first. Called locked.
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
		Help: "Events that the sweep handed on first, by why the tail had not: there is none (tail_off), it began later (before_start), it waited for room or for the sweep (held_back), " +
			"it could not read (failing), it was not sure of what is before them (left), or their rows became visible when it had read on (late).",
	}, []string{"cause"})
	for c := range SweptCauses {
		out[c] = swept.WithLabelValues(c.String())
	}
	reg.MustRegister(swept)
	return out
}
