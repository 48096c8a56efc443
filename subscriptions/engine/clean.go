package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// cleaner removes what deleted subscriptions have left: their positions and their messages.
// Every instance does; the work of the others does no harm.
func (e *Engine) cleaner(ctx context.Context) {
	for retry.Wait(ctx, cleanInterval) == nil {
		if err := e.clean(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("failed to remove deleted subscriptions; retrying", "err", err)
		}
		if err := e.refuse(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("failed to refuse replays for deleted subscriptions; retrying", "err", err)
		}
	}
}

func (e *Engine) clean(ctx context.Context) error {
	all, err := e.cfg.Store.ListDeleted(ctx)
	if err != nil {
		return err
	}
	var adm *kadm.Client
	for _, d := range all {
		if time.Since(d.At) < cleanAfter {
			continue
		}
		if adm == nil {
			if adm, err = kadm.NewOptClient(e.cfg.Kafka...); err != nil {
				return fmt.Errorf("kafka client: %w", err)
			}
			defer adm.Close()
		}
		// Not while a member is left: an instance that is slow still commits.
		if r, err := adm.DeleteGroup(ctx, d.Incarnation); err != nil || r.Err != nil && !errors.Is(r.Err, kerr.GroupIDNotFound) {
			return fmt.Errorf("delete group %s: %w", d.Incarnation, errors.Join(err, r.Err))
		}
		replayer := deadletter.Replayer{Table: (&subscriptions.Subscription{Name: subscriptionName(d.Incarnation)}).DeadLetterTable(), Owner: d.Incarnation, Store: e.cfg.DeadLetters}
		if err := replayer.End(ctx, e.cfg.DeadLetters.Chains); err != nil {
			return err
		}
		if err := e.cfg.Store.Clean(ctx, d.Incarnation); err != nil {
			return err
		}
		e.cfg.Logger.Info("deleted subscription removed", "incarnation", d.Incarnation)
	}
	return nil
}

// refuse ends the replays of dead letters whose subscription does not exist.
func (e *Engine) refuse(ctx context.Context) error {
	tables, err := e.cfg.DeadLetters.RequestedTables(ctx)
	if err != nil {
		return err
	}
	all, err := e.cfg.Store.List(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		name, ok := dlq.ParseSubscription(table)
		if !ok || slices.ContainsFunc(all, func(r store.Resource) bool { return r.Name == name }) {
			continue
		}
		// No incarnation has this name alone, so that each dead letter is that of another one.
		r := deadletter.Replayer{Table: table, Owner: name, Store: e.cfg.DeadLetters}
		if err := r.Poll(ctx); err != nil {
			return err
		}
	}
	return nil
}
