package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/receipt"
)

// waiting are the requests that wait for messages, in the order of their arrival.
type waiting struct {
	mu struct {
		sync.Mutex
		list   []*waiter
		closed bool
	}
}

type waiter struct{ wake chan struct{} }

func (w *waiting) add() *waiter {
	one := &waiter{wake: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		one.wake <- struct{}{}
		return one
	}
	w.mu.list = append(w.mu.list, one)
	return one
}

// remove removes a waiter; true if it was woken before.
func (w *waiting) remove(one *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.mu.list, one)
	if i < 0 {
		return true
	}
	w.mu.list = slices.Delete(w.mu.list, i, i+1)
	return false
}

// next wakes the first waiter.
func (w *waiting) next() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.list) == 0 {
		return
	}
	w.mu.list[0].wake <- struct{}{}
	w.mu.list[0] = nil
	w.mu.list = w.mu.list[1:]
}

func (w *waiting) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.closed = true
	for _, one := range w.mu.list {
		one.wake <- struct{}{}
	}
	w.mu.list = nil
}

// wake lets one request try to receive. It wakes the next one, if there are more messages.
func (g *group) wake() { g.waiting.next() }

// leased is a leased message with its partition.
type leased struct {
	queue.Delivery
	p     *partition
	epoch int64
}

// lease leases up to req.Max messages: in each partition the oldest ones, beginning with another
// partition each time.
func (g *group) lease(req *subscriptions.Receive) (out []leased) {
	now, n, visibility := time.Now(), req.Max, req.VisibilityTimeout
	r := g.resource.Load()
	if r.Paused || g.isStopping() || !g.session.valid(now) {
		return nil
	}
	if visibility == 0 {
		visibility = r.VisibilityTimeout
	}
	if g.pusher == nil { // that of a call is its own
		visibility = min(visibility, r.MaxExtension)
	}
	probes := g.pusher.isSuspended() // a message that fails must not be every probe
	g.mu.Lock()
	all, first := g.mu.order, g.mu.first
	g.mu.first++
	g.mu.Unlock()
	more := false
	var batch []queue.Delivery
	for i := range all {
		p := all[(first+i)%len(all)]
		p.mu.Lock()
		if q := p.mu.q; q != nil && !p.mu.closed && !p.mu.leaving {
			if batch = batch[:0]; !probes {
				batch = q.Lease(batch, n-len(out), max(1, req.MaxPerKey), now, now.Add(visibility), req.Consumer)
			} else if len(out) == 0 {
				batch = q.Probe(batch, now, now.Add(visibility), req.Consumer)
			}
			out = slices.Grow(out, len(batch))
			for _, d := range batch {
				out = append(out, leased{d, p, p.mu.epoch})
			}
			more = more || q.CanLease()
		}
		p.mu.Unlock()
		if len(out) == n && more {
			break
		}
	}
	if len(out) > 0 {
		g.alarm(now.Add(visibility))
		g.metrics.received.Add(float64(len(out)))
		if more {
			g.wake()
		}
	}
	return out
}

// Receive leases messages of the partitions of this instance. It releases the leases of
// messages that no caller waits for any more, and of messages whose acknowledgement with
// AutoAck was not applied.
func (e *Engine) Receive(ctx context.Context, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	if r.Max < 1 || r.Max > subscriptions.MaxMessages {
		return nil, fmt.Errorf("max %d: must be 1 to %d", r.Max, subscriptions.MaxMessages)
	}
	if r.MaxPerKey < 0 || r.MaxPerKey > subscriptions.MaxMessages {
		return nil, fmt.Errorf("max_per_key %d: must be 0 to %d", r.MaxPerKey, subscriptions.MaxMessages)
	}
	if r.Wait < 0 || r.Wait > subscriptions.MaxWait {
		return nil, fmt.Errorf("wait %s: must be 0 to %s", r.Wait, subscriptions.MaxWait)
	}
	if v := r.VisibilityTimeout; v != 0 && (v < subscriptions.MinVisibilityTimeout || v > subscriptions.MaxVisibilityTimeout) {
		return nil, fmt.Errorf("visibility timeout %s: must be %s to %s", v, subscriptions.MinVisibilityTimeout, subscriptions.MaxVisibilityTimeout)
	}
	g, signer, err := e.group(ctx, name)
	if err == nil && signer == nil {
		err = errIdle
	}
	if err != nil {
		return nil, err
	}
	if err := g.resource.Load().CheckReceive(); err != nil {
		return nil, err
	}
	var out []leased
	var messages []subscriptions.Message
	for end := time.Now().Add(r.Wait); len(messages) == 0; r.Wait = max(0, time.Until(end)) {
		if out = g.await(ctx, r); len(out) == 0 {
			if g.isStopping() {
				return nil, fmt.Errorf("subscription %q is stopping: %w", name, subscriptions.ErrUnavailable)
			}
			return nil, nil
		}
		var waits bool
		if messages, waits = g.messages(ctx, signer, out); len(messages) == 0 && waits {
			if time.Until(end) < registry.RetryAfter || retry.Wait(ctx, registry.RetryAfter) != nil {
				return nil, nil
			}
		}
	}
	gone := ctx.Err() != nil
	if r.AutoAck && !gone {
		messages, err = e.autoAck(ctx, name, messages)
	}
	if r.AutoAck || gone { // nobody gets the receipts: the leases are neither kept nor handed over
		for i := range out {
			out[i].release()
		}
	}
	if gone {
		return nil, nil
	}
	return messages, err
}

// await leases messages, and waits for the first one.
func (g *group) await(ctx context.Context, r subscriptions.Receive) []leased {
	out := g.lease(&r)
	if len(out) > 0 || r.Wait == 0 {
		return out
	}
	t := time.NewTimer(r.Wait)
	defer t.Stop()
	for {
		w := g.waiting.add()
		// A message that came before the waiter was added woke nobody.
		if out := g.lease(&r); len(out) > 0 || g.isStopping() {
			if g.waiting.remove(w) {
				g.wake()
			}
			return out
		}
		select {
		case <-w.wake:
			continue
		case <-t.C:
		case <-ctx.Done():
		}
		if g.waiting.remove(w) {
			if ctx.Err() == nil {
				return g.lease(&r)
			}
			g.wake() // it was this request's turn
		}
		return nil
	}
}

// schemaTimeout bounds the wait of a delivery for schemas. With registry.RetryAfter it is less
// than the lease of a push.
const schemaTimeout = 500 * time.Millisecond

// messages returns leased messages with their receipts. Those whose transform fails become
// dead letters instead. It releases messages that need the schema registry, which waits reports, and
// messages whose decoded payloads do not fit beside the ones before.
func (g *group) messages(ctx context.Context, signer *receipt.Signer, leases []leased) (out []subscriptions.Message, waits bool) {
	out = make([]subscriptions.Message, 0, len(leases))
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	size := 0
	returned := false // a message, and with it the rest of its run
	for i := range leases {
		l := &leases[i]
		if returned && l.hasEnded() {
			continue
		}
		if size > maxBytes {
			l.release()
			continue
		}
		e, err := g.event(ctx, l.Record)
		returned = returned || err != nil || size+len(e.Data) > maxBytes
		switch {
		case errors.Is(err, registry.ErrUnavailable):
			g.recordFailure(err)
			waits = true
			l.release()
		case err != nil:
			l.p.withQueue(func(q *queue.Queue) {
				q.Settle(l.Offset, l.Lease, queue.Reject, time.Now(), 0, formatError(err), queue.Waiter{})
			})
		case len(out) > 0 && size+len(e.Data) > maxBytes:
			size += len(e.Data)
			l.release()
		default:
			size += len(e.Data)
			out = append(out, g.message(signer, l, e))
		}
	}
	return out, waits
}

// hasEnded reports whether the lease has ended.
func (l *leased) hasEnded() (ended bool) {
	open := l.p.withQueue(func(q *queue.Queue) { ended = q.LeasedAt(l.Offset, l.Lease).IsZero() })
	return ended || !open
}

// release ends a lease without a delivery, which is not counted as an attempt.
func (l *leased) release() {
	l.p.withQueue(func(q *queue.Queue) { q.Settle(l.Offset, l.Lease, queue.Release, time.Now(), 0, "", queue.Waiter{}) })
}

// message returns a leased message with its receipt.
func (g *group) message(signer *receipt.Signer, l *leased, e kafkarecord.Event) subscriptions.Message {
	r := receipt.Receipt{
		Subscription: g.incarnation, Topic: l.p.topic, Partition: l.p.number, Offset: l.Offset, Attempt: l.Attempt, Lease: l.Lease, Epoch: l.epoch,
		Instance: g.e.cfg.Instance,
	}
	return subscriptions.Message{
		Event: e, Receipt: signer.Sign(&r), Attempt: l.Attempt, MaxReceive: l.MaxReceive, LeaseUntil: l.Until.UTC(),
	}
}

// autoAck acknowledges messages and returns the ones whose acknowledgement is confirmed.
// The others are delivered again, or never, if the outcome is unknown.
func (e *Engine) autoAck(ctx context.Context, name string, messages []subscriptions.Message) ([]subscriptions.Message, error) {
	actions := make([]subscriptions.Settle, len(messages))
	for i := range messages {
		actions[i] = subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: messages[i].Receipt}
	}
	results, err := e.Settle(ctx, name, actions)
	if err != nil {
		return nil, err
	}
	var out []subscriptions.Message
	for i := range messages {
		if results[i].Code == subscriptions.CodeOK {
			messages[i].Receipt = ""
			out = append(out, messages[i])
		}
	}
	return out, nil
}
