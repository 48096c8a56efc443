package relay

import (
	"context"
	"errors"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// tableWatch is how often the options of the outbox table's CDC log are looked at.
const tableWatch = time.Minute

// watchTable looks whether new events still come to the CDC log, until ctx ends. An
// ALTER TABLE can end that while the relay runs, and nothing else would show it: a log
// without new rows looks like a table without new events.
func (r *Relay) watchTable(ctx context.Context) error {
	good := time.Now()
	for retry.Wait(ctx, tableWatch) == nil {
		facts, err := cdclog.ReadTableInfo(ctx, r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table)
		if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
			continue // the tail and the sweep say that the database is away
		}
		err = facts.Check(r.table.String())
		before := r.setTableErr(err)
		switch {
		case err == nil && before != nil:
			r.log.Warn("new events come to the CDC log again; those written meanwhile are in the table alone",
				"written_from", good.UTC(), "written_until", time.Now().UTC(), "fix", r.missedFix())
		case err != nil && before == nil:
			r.log.Error("new events do not come to the CDC log any more, and are not published", "err", err)
		}
		if err == nil {
			good = time.Now()
		}
	}
	return context.Cause(ctx)
}

// missedFix says how events get out that are in the table and not in its log.
func (r *Relay) missedFix() string {
	if r.table.Plain() {
		return "start the relay with --backfill-from and the time written_from"
	}
	return "write them again: only tables with the columns of outbox_messages can be scanned"
}

// setTableErr says what is wrong with the table's CDC log, and returns what was.
func (r *Relay) setTableErr(err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.tableErr = r.tableErr, err
	return before
}
