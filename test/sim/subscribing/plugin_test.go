package subscribing

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// headerUnwanted is the header of messages that the plugin does not accept.
const headerUnwanted = "unwanted"

var (
	errRefused = errors.New("not now")
	errDead    = errors.New("the process is dead")
)

// destination is the plugin of a process for the subscription with push delivery.
type destination struct {
	p  *process
	mu sync.Mutex
	// rnd decides the results of calls.
	rnd *rand.Rand
}

// call is the part of a delivery that only a call of the plugin has.
type call struct {
	process *process
	id      string
	// ended is the end of the call, zero for one whose process died during it.
	ended time.Time
	// canceled is the time at which the engine closed the partition during the call, expired
	// the one at which the call exceeded its time.
	canceled, expired time.Time
}

// CanHandle implements plugin.Plugin.
func (*destination) CanHandle(e plugin.Event) bool { return e.Headers[headerUnwanted] == "" }

// Process records a call and its result. A call of a dead process has no effect.
func (g *destination) Process(ctx context.Context, e plugin.Event) error {
	w := g.p.w
	if g.p.Dead() {
		<-ctx.Done()
		return errDead
	}
	l := w.pushSubscription()
	d := l.recordCall(g.p, &e)
	forget := context.AfterFunc(ctx, func() { l.recordInterrupted(d, ctx.Err()) })
	defer forget()
	r := g.result(l)
	err := r.wait(ctx)
	g.p.wait(context.Background(), true)
	if g.p.Dead() {
		<-ctx.Done()
		return errDead
	}
	l.recordReturned(d, r.panics, err)
	if r.dies && !w.calm.Load() {
		w.counts.diedAfterCall.Add(1)
		g.p.Kill()
	}
	if r.panics {
		panic("no luck")
	}
	return err
}

// result is how a call ends: after some time, which it spends whether its context ends or
// not if it is deaf, or with its context.
type result struct {
	after        time.Duration
	deaf, hangs  bool
	err          error
	panics, dies bool
}

// result chooses the result of a call.
func (g *destination) result(l *ledger) (r result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.p.w
	r.after = time.Duration(g.rnd.Int64N(int64(200 * time.Millisecond)))
	r.dies = g.p.mortal && g.rnd.IntN(50) == 0
	if w.calm.Load() || g.rnd.IntN(100) >= w.sick {
		return r
	}
	switch n := g.rnd.IntN(10); {
	case n < 3:
		r.err = errRefused
	case n < 4:
		r.err = plugin.RetryAfter(errRefused, 2*time.Second)
	case n < 5:
		r.err = plugin.Permanent(errRefused)
	case n < 6:
		r.hangs = true
	case n < 7: // the result is late, and in time
		r.after, r.deaf = l.VisibilityTimeout-time.Millisecond, true
	case n < 8:
		r.after, r.deaf = l.VisibilityTimeout+time.Duration(g.rnd.Int64N(int64(20*time.Second))), true
	default:
		r.panics = true
	}
	return r
}

func (r *result) wait(ctx context.Context) error {
	switch {
	case r.hangs:
		<-ctx.Done()
		return ctx.Err()
	case r.deaf:
		time.Sleep(r.after)
		return nil
	}
	_ = retry.Wait(ctx, r.after)
	return r.err
}

// pushSubscription returns the subscription with push delivery.
func (w *world) pushSubscription() *ledger {
	for _, l := range w.subscriptions {
		if l.Push != nil {
			return l
		}
	}
	return nil
}

// recordCall records the beginning of a call.
func (l *ledger) recordCall(p *process, e *plugin.Event) *delivery {
	l.w.counts.calls.Add(1)
	now := time.Now()
	m := subscriptions.Message{Event: e.Event, LeaseUntil: now.Add(2 * l.VisibilityTimeout), Attempt: e.Attempt, MaxReceive: l.MaxReceive}
	if e.Headers[subscriptions.HeaderMaxReceive] != "" {
		m.MaxReceive = 1
	}
	return l.record(p.name, &m, 2*l.VisibilityTimeout, &call{process: p, id: e.DeliveryID})
}

// recordInterrupted records that the context of a call ended during the call.
func (l *ledger) recordInterrupted(d *delivery, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) {
		l.w.counts.hangs.Add(1)
		d.call.expired = time.Now()
	} else {
		d.call.canceled = time.Now()
	}
}

// recordReturned records the result of a call.
func (l *ledger) recordReturned(d *delivery, panics bool, err error) {
	a := &action{Action: subscriptions.ActionAck, asked: time.Now()}
	switch {
	case panics:
		l.w.counts.panics.Add(1)
		a.Action = subscriptions.ActionNack
	case plugin.IsPermanent(err):
		l.w.counts.refused.Add(1)
		a.Action = subscriptions.ActionReject
	case err != nil:
		a.Action = subscriptions.ActionNack
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d.actions, d.call.ended = append(d.actions, a), a.asked
}
