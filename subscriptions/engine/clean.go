package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// cleaner removes what deleted subscriptions have left: their positions and their messages.
// Every instance does; the work of the others does no harm.
func (e *Engine) cleaner(ctx context.Context) {
	for retry.Wait(ctx, cleanInterval) == nil {
		if err := e.clean(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Logger.Warn("failed to remove deleted subscriptions; retrying", "err", err)
		}
	}
}

func (e *Engine) clean(ctx context.Context) error {
	all, err := e.cfg.Store.Deleted(ctx)
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
		if err := e.cfg.Store.Clean(ctx, d.Incarnation); err != nil {
			return err
		}
		e.cfg.Logger.Info("deleted subscription removed", "incarnation", d.Incarnation)
	}
	return nil
}
