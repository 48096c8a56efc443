package subscribing

import (
	"cmp"
	"context"
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// consumer receives and settles messages, with any instance.
type consumer struct {
	w   *world
	l   *ledger
	rnd *rand.Rand
	// sick is the percentage of deliveries that do not end with an acknowledgement.
	sick int
	// patience is the number of requests for an action without a definite result; 0 for 6.
	patience int
	old      []*delivery // of which it still has the receipts
}

// step is an action that a consumer sends.
type step struct {
	d *delivery // nil for receipts that must be refused
	subscriptions.Settle
}

// live consumes until ctx ends.
func (c *consumer) live(ctx context.Context) {
	for ctx.Err() == nil {
		got := c.receive(ctx)
		if len(got) == 0 {
			_ = retry.Wait(ctx, 50*time.Millisecond)
			continue
		}
		if c.w.calm.Load() {
			c.ackAll(ctx, got)
			continue
		}
		if c.rnd.IntN(30) == 0 {
			continue // it has crashed
		}
		_ = retry.Wait(ctx, time.Duration(c.rnd.Int64N(int64(400*time.Millisecond))))
		c.settle(ctx, c.decide(got))
		c.old = append(c.old, got...)
		c.old = c.old[max(0, len(c.old)-20):]
	}
}

// receive returns deliveries; none after an error.
func (c *consumer) receive(ctx context.Context) (out []*delivery) {
	p := c.w.any(c.rnd)
	if p == nil {
		return nil
	}
	p.wait(ctx, true)
	r := subscriptions.Receive{
		Max: 1 + c.rnd.IntN(12), Wait: time.Duration(c.rnd.IntN(4)) * 500 * time.Millisecond, VisibilityTimeout: time.Duration(1+c.rnd.IntN(5)) * time.Second,
	}
	if c.w.calm.Load() {
		r.Max, r.Wait, r.VisibilityTimeout = 100, 10*time.Second, 30*time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, r.Wait+15*time.Second)
	defer cancel()
	got, err := p.Receive(bounded, c.l.Name, r)
	if err != nil || p.Dead() {
		return nil // the response is lost; its messages are delivered again
	}
	for i := range got {
		out = append(out, c.l.recordDelivered(p.name, &got[i], r.VisibilityTimeout))
	}
	return out
}

func (c *consumer) ackAll(ctx context.Context, got []*delivery) {
	var all []step
	for _, d := range got {
		all = append(all, step{d, subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: d.receipt}})
	}
	c.settle(ctx, all)
}

// decide returns the actions of the consumer on its deliveries, and some requests that have no
// right to an effect.
func (c *consumer) decide(got []*delivery) (out []step) {
	for _, d := range got {
		s := subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: d.receipt}
		if c.rnd.IntN(100) < c.sick {
			switch n := c.rnd.IntN(10); {
			case n < 4:
				s.Action, s.Delay = subscriptions.ActionNack, time.Duration(c.rnd.IntN(3))*time.Second
			case n < 5:
				s.Action = subscriptions.ActionRelease
			case n < 6:
				s.Action, s.Reason = subscriptions.ActionReject, "bad"
			case n < 8:
				s.Action, s.Delay = subscriptions.ActionExtend, time.Duration(1+c.rnd.IntN(20))*time.Second
			default:
				continue // the lease expires
			}
		}
		out = append(out, step{d, s})
	}
	if len(c.old) > 0 && c.rnd.IntN(2) == 0 { // late and repeated receipts
		d := c.old[c.rnd.IntN(len(c.old))]
		any := []subscriptions.Action{subscriptions.ActionAck, subscriptions.ActionAck, subscriptions.ActionExtend, subscriptions.ActionNack, subscriptions.ActionRelease}
		out = append(out, step{d, subscriptions.Settle{Action: any[c.rnd.IntN(len(any))], Receipt: d.receipt}})
		c.w.counts.late.Add(1)
	}
	if c.rnd.IntN(4) == 0 {
		out = append(out, step{nil, subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: c.forge(got[0].receipt)}})
	}
	c.rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// forge returns a text that is no receipt of the subscription.
func (c *consumer) forge(receipt string) string {
	if o := c.w.foreign(c.l); o != "" && c.rnd.IntN(3) == 0 {
		return o
	}
	b, err := base64.RawURLEncoding.DecodeString(receipt)
	must(c.w.t, err)
	switch c.rnd.IntN(3) {
	case 0:
		b = b[:c.rnd.IntN(len(b))]
	case 1:
		b = append(b, 0)
	default:
		b[c.rnd.IntN(len(b))] ^= 1 << c.rnd.IntN(8)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// foreign returns a receipt of another subscription, if there is one.
func (w *world) foreign(l *ledger) string {
	for _, o := range w.subscriptions {
		if o == l {
			continue
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, m := range o.mu.messages {
			if n := len(m.deliveries); n > 0 {
				return m.deliveries[n-1].receipt
			}
		}
	}
	return ""
}

// settle sends the steps to any instance, and repeats those without a definite result.
func (c *consumer) settle(ctx context.Context, steps []step) {
	for n := 0; len(steps) > 0 && n < cmp.Or(c.patience, 6) && ctx.Err() == nil; n++ {
		if n > 0 {
			_ = retry.Wait(ctx, time.Second)
		}
		p := c.w.any(c.rnd)
		if p == nil {
			continue
		}
		p.wait(ctx, true)
		actions := make([]subscriptions.Settle, len(steps))
		asked := make([]*action, len(steps))
		for i, s := range steps {
			actions[i] = s.Settle
			if s.d != nil {
				asked[i] = c.l.asks(s.d, s.Action)
			}
		}
		bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
		results, err := p.Settle(bounded, c.l.Name, actions)
		cancel()
		if err != nil || p.Dead() {
			continue
		}
		open := make([]step, 0, len(steps))
		for i, r := range results {
			switch {
			case asked[i] != nil:
				c.l.recordAnswered(asked[i], r.Code)
			case r.Code != subscriptions.CodeInvalid:
				c.w.t.Errorf("%s: a forged receipt %q is %s", c.l.Name, steps[i].Receipt, r.Code)
			}
			if r.Code == subscriptions.CodeUnknown || r.Code == subscriptions.CodeUnavailable {
				open = append(open, steps[i])
			}
		}
		steps = slices.Clip(open)
	}
}
