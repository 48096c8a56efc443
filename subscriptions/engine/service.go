package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// maxCounted is the number of dead letters at which Status stops counting.
const maxCounted = 10_000

// Put creates or replaces a subscription. It runs within a second, on all instances.
func (e *Engine) Put(ctx context.Context, s subscriptions.Subscription, principal string) (subscriptions.Subscription, error) {
	s = s.WithDefaults()
	err := s.Validate()
	if err == nil && s.Push != nil {
		_, err = e.cfg.Push.Plugin(s.Push)
	}
	if err = errors.Join(err, filter.Check(s.Filter, s.Transform)); err != nil {
		return subscriptions.Subscription{}, err
	}
	r, err := e.cfg.Store.Put(ctx, s, principal)
	e.poke()
	return r.Subscription, unavailable(err)
}

// Get returns a subscription.
func (e *Engine) Get(ctx context.Context, name string) (subscriptions.Subscription, error) {
	r, err := e.cfg.Store.Get(ctx, name)
	return r.Subscription, unavailable(err)
}

// List returns all subscriptions, by name.
func (e *Engine) List(ctx context.Context) ([]subscriptions.Subscription, error) {
	all, err := e.cfg.Store.List(ctx)
	out := make([]subscriptions.Subscription, len(all))
	for i := range all {
		out[i] = all[i].Subscription
	}
	return out, unavailable(err)
}

// Delete removes a subscription. Its instances stop within a second.
func (e *Engine) Delete(ctx context.Context, name string, version int64, principal string) error {
	err := e.cfg.Store.Delete(ctx, name, version, principal)
	e.poke()
	return unavailable(err)
}

// Pause stops deliveries; leases stay valid.
func (e *Engine) Pause(ctx context.Context, name, principal string) error {
	_, err := e.cfg.Store.Pause(ctx, name, principal)
	e.poke()
	return unavailable(err)
}

// Resume continues deliveries.
func (e *Engine) Resume(ctx context.Context, name, principal string) error {
	_, err := e.cfg.Store.Resume(ctx, name, principal)
	e.poke()
	return unavailable(err)
}

// Seek stores the wish. The owners of the partitions apply it within seconds; partitions
// without an owner when they have one. An offset that the partition does not have is refused.
// If it has it no more when the seek is applied, the nearest one is used.
func (e *Engine) Seek(ctx context.Context, name string, s subscriptions.Seek, principal string) error {
	if s.To == "offset" {
		g, _, err := e.group(ctx, name)
		if err == nil {
			err = g.checkOffset(ctx, &s)
		}
		if err != nil {
			return err
		}
	}
	_, err := e.cfg.Store.Seek(ctx, name, s, principal)
	e.poke()
	return unavailable(err)
}

// checkOffset returns an error for a seek to an offset that the partition does not have.
func (g *group) checkOffset(ctx context.Context, s *subscriptions.Seek) error {
	if s.Topic == "" || s.Partition < 0 || g.adm == nil {
		return nil // the store refuses it
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	first, end, err := g.bounds(ctx, s.Topic, s.Partition)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, errMissing):
		return fmt.Errorf("partition %d of topic %q does not exist", s.Partition, s.Topic)
	case err != nil:
		return unavailable(err)
	case s.Offset < first || s.Offset > end:
		return fmt.Errorf("offset %d: %s/%d has the offsets %d to %d", s.Offset, s.Topic, s.Partition, first, end)
	}
	return nil
}

// AcknowledgeSkips ends the problems of the ranges that were not delivered.
func (e *Engine) AcknowledgeSkips(ctx context.Context, name, principal string) error {
	r, err := e.cfg.Store.Get(ctx, name)
	if err != nil {
		return unavailable(err)
	}
	n, err := e.cfg.Store.AcknowledgeSkips(ctx, r.Incarnation(), principal)
	e.cfg.Logger.Info("skips acknowledged", "subscription", name, "count", n, "by", principal)
	return unavailable(err)
}

// Purge settles the waiting and deferred messages of the partitions of this instance, and
// the records that were written before Before and are not read yet. It records the purge first. It returns when that
// is durable, which takes longer while messages written before it are leased.
func (e *Engine) Purge(ctx context.Context, name string, req subscriptions.Purge, principal string) (int64, error) {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return 0, err
	}
	before := req.Before
	if before.IsZero() {
		before = time.Now()
	}
	if !req.DryRun {
		if err := e.cfg.Store.NotePurge(ctx, name, before, principal); err != nil {
			return 0, unavailable(err)
		}
	}
	total := int64(0)
	var purged []*partition
	ends := make(map[*partition]int64)
	for _, p := range g.ownedPartitions() {
		end, err := g.findOffset(ctx, p, "", before)
		if err != nil {
			return total, unavailable(err)
		}
		p.withQueue(func(q *queue.Queue) {
			total += q.Purge(time.Now(), before, end, req.DryRun) + max(0, end-q.Counts().Next)
			ends[p] = end
			purged = append(purged, p)
		})
	}
	if req.DryRun {
		return total, nil
	}
	g.log.Info("messages purged", "before", before, "count", total)
	for _, p := range purged {
		for !p.hasPassed(ends[p]) {
			if err := retry.Wait(ctx, 10*time.Millisecond); err != nil {
				return total, fmt.Errorf("the purge is not finished: %w", errors.Join(subscriptions.ErrUnavailable, err))
			}
		}
	}
	return total, nil
}

// hasPassed reports whether the records before an offset are read, and no purged message
// waits for a confirmation. A closed partition has passed.
func (p *partition) hasPassed(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.q == nil || p.mu.closed {
		return true
	}
	changed, _ := p.mu.q.Dirty()
	return p.mu.q.Counts().Next >= offset && !changed && !p.mu.q.HasWork() && !p.mu.working
}

// Status returns the state of a subscription. The counts cover the partitions of
// this instance; the others have their committed offset.
func (e *Engine) Status(ctx context.Context, name string) (subscriptions.Status, error) {
	g, _, err := e.group(ctx, name)
	if err != nil {
		return subscriptions.Status{}, err
	}
	return e.status(ctx, g)
}

// status reads the parts of a state concurrently, because none depends on another.
func (e *Engine) status(ctx context.Context, g *group) (out subscriptions.Status, err error) {
	out.Subscription = g.resource.Load().Subscription
	var all errgroup.Group
	all.Go(func() (err error) { out.Instances, err = e.cfg.Store.Instances(ctx, g.name); return err })
	all.Go(func() (err error) { out.Skips, err = e.cfg.Store.Skips(ctx, g.incarnation); return err })
	all.Go(func() (err error) { out.Partitions, err = g.partitions(ctx); return err })
	all.Go(func() error {
		_, err := e.cfg.DeadLetters.FirstChains(ctx, out.Subscription.DeadLetterTable(), maxCounted, func(c dlq.ChainEntry) {
			if open(c.Status) && out.DeadLetters < maxCounted {
				out.DeadLetters++
			}
		})
		return err
	})
	err = all.Wait()
	out.AddPartitions()
	return out, unavailable(err)
}
