package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/receipt"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// maxReason bounds the reason of a consumer, in bytes.
const maxReason = 2000

// call collects the results of one Settle.
type call struct {
	done chan struct{} // closed when all results are known
	// leased are the times at which the leases began; zero for leases that had ended.
	leased []time.Time
	mu     struct {
		sync.Mutex
		results []subscriptions.Result
		open    int
	}
}

// newCall returns a call for n actions.
func newCall(n int) *call {
	c := &call{done: make(chan struct{}), leased: make([]time.Time, n)}
	c.mu.results = make([]subscriptions.Result, n)
	c.mu.open = n
	return c
}

// Done sets the result of a pending action.
func (c *call) Done(i int, o queue.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.results == nil || c.mu.results[i].Code != "" {
		return // the request has ended
	}
	c.mu.results[i] = newResult(o)
	if c.mu.open--; c.mu.open == 0 {
		close(c.done)
	}
}

// wait waits for the results, up to settleTimeout, and returns them; the ones that are still open are unknown.
func (c *call) wait(ctx context.Context) []subscriptions.Result {
	t := time.NewTimer(settleTimeout)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.mu.results
	c.mu.results = nil
	for i := range out {
		if out[i].Code == "" {
			out[i] = newResult(queue.Unknown)
		}
	}
	return out
}

func newResult(o queue.Outcome) subscriptions.Result {
	switch o {
	case queue.OK:
		return subscriptions.Result{Code: subscriptions.CodeOK}
	case queue.Expired:
		return subscriptions.Result{Code: subscriptions.CodeLeaseExpired, Error: "the lease has ended; the message may be delivered again"}
	case queue.OutOfOrder:
		return subscriptions.Result{Code: subscriptions.CodeOutOfOrder, Error: "an earlier message of the run is not settled; settle it first"}
	case queue.Moved:
		return notOwned
	default:
		return subscriptions.Result{Code: subscriptions.CodeUnknown, Error: "no confirmation in time; repeat the request with the same receipt"}
	}
}

// step is an action with its receipt and the partition of its message.
type step struct {
	index int
	p     *partition
	*subscriptions.Settle
	receipt.Receipt
}

// Owner returns the instance that leased the message of a receipt; false if it is no
// receipt of the subscription, or Run has not read the key yet. A text that names this
// instance is not verified: Settle does that.
func (e *Engine) Owner(name, text string) (instance string, ok bool) {
	if receipt.Names(text, e.cfg.Instance) {
		return e.cfg.Instance, true
	}
	e.mu.Lock()
	signer := e.mu.signer
	e.mu.Unlock()
	if signer == nil {
		return "", false
	}
	r, err := signer.Parse(text)
	if err != nil || subscriptionName(r.Subscription) != name {
		return "", false
	}
	return r.Instance, true
}

// Holders returns the instances that have the partitions of receipts now: the ones that have
// claimed them last, as of a moment ago. It is empty for texts that are no receipts of the subscription. An engine that
// has stopped answers, too.
func (e *Engine) Holders(ctx context.Context, name string, receipts []string) ([]string, error) {
	e.mu.Lock()
	g, signer := e.mu.groups[name], e.mu.signer
	e.mu.Unlock()
	if signer == nil {
		return nil, fmt.Errorf("this instance is starting: %w", subscriptions.ErrUnavailable)
	}
	out, of := make([]string, len(receipts)), make(map[store.Partition][]int)
	for i, text := range receipts {
		r, err := signer.Parse(text)
		switch {
		case err != nil || subscriptionName(r.Subscription) != name:
		case g != nil && g.Owns(r.Topic, r.Partition):
			out[i] = e.cfg.Instance
		default:
			p := store.Partition{Subscription: r.Subscription, Topic: r.Topic, Number: r.Partition}
			of[p] = append(of[p], i)
		}
	}
	if err := tryEach(slices.Collect(maps.Keys(of)), func(p store.Partition) error {
		holder, err := e.holders.find(ctx, p, e.cfg.Store.Owner)
		for _, i := range of[p] { // none of another partition
			out[i] = holder
		}
		return err
	}); err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

// subscriptionName returns the name of a subscription from its incarnation.
func subscriptionName(incarnation string) string {
	name, _, _ := strings.Cut(incarnation, ".")
	return name
}

// Settle applies the actions to leases of this instance. Actions for partitions that it does not
// have now get CodeUnavailable: send them to the instance of Holders.
func (e *Engine) Settle(ctx context.Context, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	if len(actions) > subscriptions.MaxReceipts {
		return nil, fmt.Errorf("%d receipts: at most %d are allowed", len(actions), subscriptions.MaxReceipts)
	}
	for i := range actions {
		if err := check(&actions[i]); err != nil {
			return nil, err
		}
	}
	g, signer, err := e.group(ctx, name)
	if err == nil && signer == nil {
		err = errIdle
	}
	if err != nil {
		return nil, err
	}
	if len(actions) == 0 {
		return nil, nil
	}
	c := newCall(len(actions))
	began := time.Now()
	for steps := c.steps(ctx, g, signer, actions); len(steps) > 0; { // most of them are of one partition
		p, n := steps[0].p, 1
		for n < len(steps) && steps[n].p == p {
			n++
		}
		p.settle(c, steps[:n], began)
		steps = steps[n:]
	}
	results := c.wait(ctx)
	g.metrics.countSettled(actions, results, began, c.leased)
	return results, nil
}

// check validates an action beside its receipt.
func check(s *subscriptions.Settle) error {
	switch s.Action {
	case subscriptions.ActionAck, subscriptions.ActionNack, subscriptions.ActionRelease, subscriptions.ActionExtend, subscriptions.ActionReject:
	default:
		return fmt.Errorf("action %q: use ack, nack, release, extend or reject", s.Action)
	}
	if s.Delay < 0 || s.Delay > subscriptions.MaxDelay {
		return fmt.Errorf("delay %s: must be 0 to %s", s.Delay, subscriptions.MaxDelay)
	}
	return nil
}

// steps returns the actions for partitions of this instance, in their order. The others are
// done.
func (c *call) steps(ctx context.Context, g *group, signer *receipt.Signer, actions []subscriptions.Settle) []step {
	out := make([]step, 0, len(actions))
	for i := range actions {
		r, err := signer.Parse(actions[i].Receipt)
		if err != nil || subscriptionName(r.Subscription) != g.name {
			c.answer(i, subscriptions.Result{Code: subscriptions.CodeInvalid, Error: receipt.ErrInvalid.Error()})
			continue
		}
		p := g.partition(topicPartition{r.Topic, r.Partition})
		switch {
		case r.Subscription != g.incarnation:
			c.Done(i, queue.Expired)
		case p == nil && g.Unserved(ctx, r.Topic, r.Partition) != nil:
			c.Done(i, queue.Expired)
		case p == nil:
			c.answer(i, notOwned)
		default:
			out = append(out, step{i, p, &actions[i], r})
		}
	}
	return out
}

// notOwned is the result for a lease of a partition that this instance does not have, or that it
// is opening or handing over: the lease may be alive at the next owner.
var notOwned = subscriptions.Result{Code: subscriptions.CodeUnavailable, Error: "this instance does not have the partition of the message now; repeat the request"}

func (c *call) answer(i int, r subscriptions.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.results[i] = r
	if c.mu.open--; c.mu.open == 0 {
		close(c.done)
	}
}

// settle applies actions to the leases of the partition.
func (p *partition) settle(c *call, steps []step, now time.Time) {
	visibility := p.g.resource.Load().VisibilityTimeout
	open := p.withQueue(func(q *queue.Queue) {
		for i := range steps {
			s := &steps[i]
			if p.mu.leaving {
				c.answer(s.index, notOwned)
				continue
			}
			if !hasLease(p.mu.epochs, s.Epoch, s.Lease) {
				c.Done(s.index, queue.Expired)
				continue
			}
			if s.Action == subscriptions.ActionExtend {
				until := now.Add(s.Delay)
				if s.Delay == 0 {
					until = now.Add(visibility)
				}
				if until = q.Extend(s.Offset, s.Lease, now, until); !until.IsZero() {
					c.answer(s.index, subscriptions.Result{Code: subscriptions.CodeOK, LeaseUntil: until.UTC()})
				} else {
					c.Done(s.index, queue.Expired)
				}
				continue
			}
			c.leased[s.index] = q.LeasedAt(s.Offset, s.Lease)
			o := q.Settle(s.Offset, s.Lease, toQueueAction(s.Action), now, s.Delay, boundedReason(s.Settle), queue.Waiter{Call: c, Index: s.index})
			if o != queue.Pending {
				c.Done(s.index, o)
			}
		}
	})
	if !open {
		for i := range steps {
			c.answer(steps[i].index, notOwned)
		}
	}
}

func toQueueAction(a subscriptions.Action) queue.Action {
	switch a {
	case subscriptions.ActionNack:
		return queue.Nack
	case subscriptions.ActionRelease:
		return queue.Release
	case subscriptions.ActionReject:
		return queue.Reject
	default:
		return queue.Ack
	}
}

// boundedReason returns the consumer's error with its details, bounded and in valid UTF-8.
func boundedReason(s *subscriptions.Settle) string {
	bounded := func(text string, limit int) string {
		return strings.ToValidUTF8(text[:min(len(text), limit)], "\uFFFD")
	}
	reason := "the consumer returned the message"
	switch {
	case s.Reason != "":
		reason = bounded(s.Reason, maxReason)
	case s.Action == subscriptions.ActionReject:
		reason = "rejected by the consumer"
	}
	return queue.WithDetails(reason, bounded(s.Details, subscriptions.MaxDetails))
}
