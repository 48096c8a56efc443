package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

const (
	// pushDrainTimeout bounds the calls in flight of partitions that are revoked, instead
	// of drainTimeout: calls with the default visibility timeout end in it. With two commits
	// and the hand-over it is less than rebalanceTimeout.
	pushDrainTimeout = 35 * time.Second
	// maxPostponed bounds the delay of a message whose delivery does not count: it waits for
	// the breaker anyway.
	maxPostponed = time.Second
	// pushEndTimeout is the time in which calls return whose partition was closed.
	pushEndTimeout = time.Second
)

// pusher is the consumer of a subscription with push delivery: it calls a plugin for each
// message that this instance leases.
type pusher struct {
	g       *group
	plugin  plugin.Plugin
	breaker *breaker
	slots   chan struct{} // holds one token for each call; a call that hangs keeps it
	calls   sync.WaitGroup
	seconds prometheus.Observer
	stuck   prometheus.Gauge
	spans   *trace.Messages
}

func newPusher(g *group, p plugin.Plugin) *pusher {
	m := g.e.metrics
	return &pusher{
		g: g, plugin: p, breaker: newBreaker(g, g.resource.Load().Push.To), slots: make(chan struct{}, g.resource.Load().Push.Concurrency), seconds: m.pushing.WithLabelValues(g.name), stuck: m.stuck.WithLabelValues(g.name),
		spans: trace.NewMessages(g.e.cfg.Tracer),
	}
}

// chooses reports whether accepts depends on the record.
func (u *pusher) chooses() bool { return u != nil && !plugin.AcceptsAll(u.plugin) }

// accepts reports whether the plugin of a subscription with push delivery accepts a record. One
// whose transform fails is accepted: its delivery fails.
func (u *pusher) accepts(ctx context.Context, rec *kgo.Record) bool {
	if !u.chooses() {
		return true
	}
	e, err := u.g.event(ctx, rec)
	return err != nil || plugin.Accepts(u.plugin, plugin.NewEvent(u.g.name, e, 0))
}

// run leases messages while there are places for calls and the breaker permits them, until the
// group stops or ctx ends.
func (u *pusher) run(ctx context.Context) {
	for {
		select {
		case u.slots <- struct{}{}:
		case <-u.g.stopping:
			return
		case <-ctx.Done():
			return
		}
		free := 1
		for more := true; more && free < cap(u.slots); {
			select {
			case u.slots <- struct{}{}:
				free++
			default:
				more = false
			}
		}
		allowed := u.breaker.wait(ctx, u.g.stopping, free)
		for ; free > allowed; free-- {
			<-u.slots
		}
		if allowed == 0 {
			return
		}
		// The lease is longer than the call may last, so that it never ends before the
		// result of a call that keeps to its time.
		r := u.g.resource.Load()
		timeout := r.VisibilityTimeout
		leases := u.g.await(ctx, subscriptions.Receive{Max: free, Wait: time.Hour, VisibilityTimeout: 2 * timeout, Consumer: r.Push.To})
		for range free - len(leases) {
			<-u.slots
		}
		for i := range leases {
			u.calls.Add(1)
			go u.deliver(&leases[i], timeout)
		}
		if len(leases) == 0 && u.g.isStopping() {
			return
		}
	}
}

// deliver calls the plugin for a leased message and settles it.
func (u *pusher) deliver(l *leased, timeout time.Duration) {
	defer u.calls.Done()
	ctx, cancel := context.WithTimeout(l.p.ctx, schemaTimeout)
	event, err := u.g.event(ctx, l.Record)
	cancel()
	if errors.Is(err, registry.ErrUnavailable) {
		u.g.recordFailure(err)
		_ = retry.Wait(l.p.ctx, registry.RetryAfter) // with its place, so that it is not leased again immediately
		<-u.slots
		l.release()
		return
	}
	if err != nil {
		<-u.slots
		u.settle(l, plugin.Permanent(err), true)
		return
	}
	done, err := u.breaker.Allow()
	if err != nil { // it has opened since the message was leased
		<-u.slots
		l.release()
		return
	}
	err, abandoned := u.await(l, u.call(l, event, timeout), timeout)
	if abandoned || err != nil && l.p.ctx.Err() != nil { // it may be the result of the end of the call
		done(circuit.ErrUncounted)
		return
	}
	counts := u.breaker.result(place{l.p.topicPartition, l.Offset}, u.plugin, err, done)
	u.settle(l, err, counts)
}

// call starts a call of the plugin. The place is free when the call returns, however long
// that takes, so a plugin that hangs blocks only places of its own subscription.
func (u *pusher) call(l *leased, event kafkarecord.Event, timeout time.Duration) <-chan error {
	ctx, cancel := context.WithTimeout(l.p.ctx, timeout)
	done := make(chan error, 1)
	e := plugin.NewEvent(u.g.name, event, l.Attempt)
	ctx, end := u.spans.Push(ctx, &trace.Pushed{
		Subscription: u.g.name, To: u.g.resource.Load().Push.To, Topic: e.Topic, Partition: e.Partition, Offset: e.Offset, ID: e.ID, Headers: e.Headers,
	})
	began := time.Now()
	go func() {
		defer cancel()
		err := plugin.Call(ctx, u.plugin, e, func() {
			u.g.log.Error("the plugin panicked", "event_id", e.ID, "stack", string(debug.Stack()))
		})
		latency.Observe(u.seconds, time.Since(began), trace.Exemplar(ctx))
		end(err)
		<-u.slots
		done <- err
	}()
	return done
}

// await returns the result of a call. A call that does not return in time keeps its lease,
// so that its message is not delivered concurrently and the next one of its key waits.
// abandoned means that the partition was closed first: its next owner delivers the message.
func (u *pusher) await(l *leased, done <-chan error, timeout time.Duration) (err error, abandoned bool) {
	// A plugin that returns with its context gets time to return its error.
	t := time.NewTimer(timeout + timeout/10)
	defer t.Stop()
	select {
	case err := <-done:
		return err, false
	case <-l.p.ctx.Done():
		return nil, true
	case <-t.C:
	}
	u.stuck.Inc()
	defer u.stuck.Dec()
	u.g.log.Warn("the plugin hangs; its place and its key are blocked until it returns", "topic", l.p.topic, "partition", l.p.number, "offset", l.Offset)
	u.g.recordFailure(fmt.Errorf("push to %s: attempt %d of %s/%d, offset %d, has not returned after %s", u.g.resource.Load().Push.To, l.Attempt, l.p.topic, l.p.number, l.Offset, timeout))
	for {
		l.p.withQueue(func(q *queue.Queue) {
			now := time.Now()
			q.Extend(l.Offset, l.Lease, now, now.Add(2*timeout))
		})
		t.Reset(timeout)
		select {
		case err := <-done:
			return err, false
		case <-l.p.ctx.Done():
			return nil, true
		case <-t.C:
		}
	}
}

// settle acknowledges a delivered message, rejects one with a permanent error, and returns
// others, as failed deliveries if they count. It does not wait: the next message of the key
// follows after the confirmation.
func (u *pusher) settle(l *leased, err error, counts bool) {
	action, delay, reason := queue.Ack, time.Duration(0), ""
	r := u.g.resource.Load()
	if err != nil {
		reason = formatError(err)
		u.g.recordFailure(fmt.Errorf("push to %s: %s", r.Push.To, reason))
		u.g.log.Debug("delivery failed", "topic", l.p.topic, "partition", l.p.number, "offset", l.Offset, "attempt", l.Attempt, "err", reason)
		action, delay = queue.Nack, min(plugin.RequestedWait(err), r.MaxBackoff)
		switch {
		case plugin.IsPermanent(err):
			action = queue.Reject
		case !counts:
			action, delay = queue.Postpone, cmp.Or(delay, min(r.Backoff, maxPostponed))
		}
	}
	l.p.withQueue(func(q *queue.Queue) {
		q.Settle(l.Offset, l.Lease, action, time.Now(), delay, reason, queue.Waiter{Call: pushed{u.g.metrics, action, q.LeasedAt(l.Offset, l.Lease)}})
	})
}

// formatError returns the stored form of an error, which is not empty.
func formatError(err error) string {
	s := subscriptions.Settle{Action: subscriptions.ActionReject, Reason: strings.ToValidUTF8(err.Error(), "\uFFFD")}
	if s.Reason == "" {
		s.Reason = fmt.Sprintf("an error of type %T without a text", err)
	}
	return boundedReason(&s)
}

// pushed counts the confirmed result of a call.
type pushed struct {
	m      *groupMetrics
	action queue.Action
	leased time.Time
}

// Done implements queue.Call.
func (c pushed) Done(_ int, o queue.Outcome) {
	switch {
	case o != queue.OK:
	case c.action == queue.Ack:
		c.m.acknowledged.Inc()
		c.m.processing.Observe(time.Since(c.leased).Seconds())
	case c.action == queue.Nack:
		c.m.failed.Inc()
	}
}

// breakerStatus returns the state of the breaker; nil for pull delivery.
func (u *pusher) breakerStatus() *subscriptions.BreakerStatus {
	if u == nil {
		return nil
	}
	return u.breaker.status()
}

// isSuspended reports whether the destination is called by probes only.
func (u *pusher) isSuspended() bool { return u != nil && u.breaker.Look().State != circuit.Closed }

// end waits for the calls whose partitions were closed. Calls that hang are left.
func (u *pusher) end() {
	if u == nil {
		return
	}
	ended := make(chan struct{})
	go func() { u.calls.Wait(); close(ended) }()
	ctx, cancel := context.WithTimeout(context.Background(), pushEndTimeout)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// samePush reports whether two subscriptions have the same destination.
func samePush(a, b *subscriptions.Push) bool {
	return a == b || a != nil && b != nil && *a == *b
}
