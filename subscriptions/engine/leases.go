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
func (e *Engine) Leases(ctx context.Context, name string, limit int) ([]subscriptions.Lease, bool, error) {
	if limit < 1 || limit > subscriptions.MaxLeases {
		return nil, false, fmt.Errorf("limit %d: must be 1 to %d", limit, subscriptions.MaxLeases)
	}
	g, _, err := e.group(ctx, name)
	if err != nil {
		return nil, false, err
	}
	var all []subscriptions.Lease
	for _, p := range g.owned() {
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
	out, more := subscriptions.FirstLeases(all, limit)
	return out, more, nil
}

// EndLease ends a lease of a partition of this instance.
func (e *Engine) EndLease(ctx context.Context, name string, lease subscriptions.LeaseID, principal string) error {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return err
	}
	if err := g.resource.Load().CheckEndLease(); err != nil {
		return err
	}
	released := false
	if p := g.partition(topicPartition{lease.Topic, lease.Partition}); p != nil {
		p.locked(func(q *queue.Queue) {
			now := time.Now()
			// Settle alone would report a lease that its consumer has released before as
			// released again.
			if released = !q.LeasedAt(lease.Offset, lease.Number).IsZero() && q.Settle(lease.Offset, lease.Number, queue.Release, now, 0, "", queue.Waiter{}) == queue.OK; released {
				g.log.Info("lease released", "lease", lease.String(), "by", principal)
			}
		})
	}
	if !released {
		return fmt.Errorf("lease %s: %w", lease, subscriptions.ErrLeaseEnded)
	}
	return nil
}
