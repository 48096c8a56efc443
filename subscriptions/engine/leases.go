package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// Leases returns the leases of the partitions of this instance.
func (e *Engine) Leases(ctx context.Context, name, cursor string, limit int) (subscriptions.LeasePage, error) {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return subscriptions.LeasePage{}, err
	}
	var all []subscriptions.Lease
	for _, p := range g.ownedPartitions() {
		p.apply(func(q *queue.Queue) {
			q.Expire(time.Now())
			for _, l := range q.Leases() {
				id := subscriptions.LeaseID{Topic: p.topic, Partition: p.number, Offset: l.Offset, Number: l.Lease}
				event := ""
				if l.Record != nil { // else the former owner has leased it
					event = header(l.Record, outbox.HeaderID)
				}
				all = append(all, subscriptions.Lease{
					ID: id.String(), Topic: p.topic, Partition: p.number, Offset: store.RecordOffset(l.Offset), EventID: event, Key: l.Key,
					Consumer: l.Consumer, Attempt: l.Attempt, MaxReceive: l.MaxReceive, ReceivedAt: l.Since.UTC(), ExpiresAt: l.Until.UTC(), Owner: g.e.cfg.Instance,
				})
			}
		})
	}
	return subscriptions.NewLeasePage(all, cursor, limit)
}

// EndLease ends a lease of a partition of this instance.
func (e *Engine) EndLease(ctx context.Context, name string, lease subscriptions.LeaseID, action subscriptions.Action, principal string) error {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return err
	}
	if err := g.resource.Load().CheckEndLease(); err != nil {
		return err
	}
	c, found := newCall(1), false
	if p := g.partition(topicPartition{lease.Topic, lease.Partition}); p != nil {
		p.withQueue(func(q *queue.Queue) {
			// Settle alone would report a lease that its consumer has ended before as ended again.
			if q.LeasedAt(lease.Offset, lease.Number).IsZero() {
				return
			}
			found = true
			g.log.Info("an operator ends a lease", "lease", lease.String(), "action", action, "by", principal)
			if o := q.Settle(lease.Offset, lease.Number, toQueueAction(action), time.Now(), 0, "rejected by "+principal, queue.Waiter{Call: c}); o != queue.Pending {
				c.Done(0, o)
			}
		})
	}
	if !found {
		return fmt.Errorf("lease %s: %w", lease, subscriptions.ErrLeaseEnded)
	}
	switch r := c.wait(ctx)[0]; r.Code {
	case subscriptions.CodeOK:
		return nil
	case subscriptions.CodeLeaseExpired:
		return fmt.Errorf("lease %s: %w", lease, subscriptions.ErrLeaseEnded)
	default:
		return fmt.Errorf("lease %s: %s: %w", lease, r.Error, subscriptions.ErrUnavailable)
	}
}
