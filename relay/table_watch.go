package relay

import (
	"context"
	"errors"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// tableWatch is the interval between checks of the outbox table's CDC options.
const tableWatch = time.Minute

// watchTable checks until ctx ends that the CDC log still records new events. An
// ALTER TABLE can disable it while the relay runs. No other check detects that: a log
// without new rows is the same as a table without new events.
func (r *Relay) watchTable(ctx context.Context) error {
	good := time.Now()
	for retry.Wait(ctx, tableWatch) == nil {
		facts, err := cdclog.ReadTableInfo(ctx, r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table)
		if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
			continue // the tail and sweep readers report database failures
		}
		err = facts.Check(r.table.String())
		before := r.setTableErr(err)
		switch {
		case err == nil && before != nil:
			r.log.Warn("the CDC log receives new events again; those written in the interval are only in the table",
				"written_from", good.UTC(), "written_until", time.Now().UTC(), "fix", r.missedFix())
		case err != nil && before == nil:
			r.log.Error("the CDC log receives no new events, so they are not published", "err", err)
		}
		if err == nil {
			good = time.Now()
		}
	}
	return context.Cause(ctx)
}

// missedFix returns how to publish events that are in the table but not in its log.
func (r *Relay) missedFix() string {
	if r.table.Plain() {
		return "start the relay with --backfill-from and the time written_from"
	}
	return "write them again: only tables with the columns of outbox_messages can be scanned"
}

// setTableErr sets the problem of the table's CDC log and returns the previous one.
func (r *Relay) setTableErr(err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.tableErr = r.tableErr, err
	return before
}
