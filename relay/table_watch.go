package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/thejerf/suture/v4"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

const (
	// watchAtLeast is the minimum interval between two looks at what changes rarely.
	watchAtLeast = 5 * time.Second
	// gapReported is how long /readyz reports events that the log does not have and no scan
	// finds.
	gapReported = time.Hour
	// heldAtMost is how long a stream is held whose row did not fit the mapping although the
	// table does.
	heldAtMost = time.Minute
	// schemaSettles is how long the nodes of the database may have different schemas after an
	// ALTER TABLE.
	schemaSettles = 10 * time.Second
)

// errAltered ends a pass: the columns of the outbox table are not the columns that it began with.
var errAltered = errors.New("the columns of the outbox table were altered")

// errEpoch ends a pass: an epoch of the outbox table has begun.
var errEpoch = errors.New("an epoch of the outbox table has begun")

// watchInterval returns the interval at which the relay looks at what changes rarely: that of its
// reads of idle streams, at least watchAtLeast.
func (c *Config) watchInterval() time.Duration { return max(watchAtLeast, c.IdleDelay) }

// tableInterval is watchInterval for the outbox table's CDC options: at most a fraction of the
// confidence window, because a position must not pass a gap of the log before it is found.
func (c *Config) tableInterval() time.Duration { return min(c.watchInterval(), c.ConfidenceWindow/4) }

// seenColumns contains the columns of the outbox table that watchTable has read. They change
// only together with the rest of the table's schema, which it reads each time.
type seenColumns struct {
	columns []outbox.Column
	text    string    // of columns
	read    time.Time // zero before the first time
	facts   cdclog.TableInfo
	since   time.Time // when these facts were read first
}

// outdated reports whether the columns may be others than the columns that were read last:
// for schemaSettles after a change of the facts the node that is asked may not know it.
func (s *seenColumns) outdated(facts cdclog.TableInfo, now time.Time) bool {
	if s.since.IsZero() || s.facts != facts {
		s.facts, s.since = facts, now
	}
	return s.read.Before(s.since.Add(schemaSettles))
}

// watchTable checks until ctx ends that the CDC log records all new events, that the table
// fits its mapping, and that no epoch has begun. An ALTER TABLE can disable the log, or drop it and create another one, while
// the relay runs. No other check detects that: a log without rows is the same as a table without
// new events. While a mapped column is missing, rows wait in the log; when all are back, maybe with
// another type, the pass ends with errAltered, and the next one reads them.
func (x *pass) watchTable(ctx context.Context) error {
	began, misfit, seen := time.Now(), false, seenColumns{}
	for retry.Wait(ctx, x.cfg.tableInterval()) == nil {
		if now, err := epochs.Read(ctx, x.cfg.Session, x.cfg.Keyspace, x.cfg.TableKeyspace+"."+x.cfg.Table); err == nil && !slices.Equal(now, x.epochs) {
			x.fail(errEpoch)
			return suture.ErrDoNotRestart
		}
		facts, err := cdclog.ReadTableInfo(ctx, x.cfg.Session, x.cfg.TableKeyspace, x.cfg.Table)
		if errors.Is(err, gocql.ErrNotFound) {
			x.setTableErr(&outbox.MappingError{Table: x.table.String(), Problem: "does not exist", Fix: "create it, or remove it from the configuration"})
		}
		if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) {
			continue // the tail and sweep readers report database failures
		}
		if now := time.Now(); seen.outdated(facts, now) {
			columns, err := outbox.ReadColumns(ctx, x.cfg.Session, x.cfg.TableKeyspace, x.cfg.Table)
			if err != nil {
				continue
			}
			seen.columns, seen.text, seen.read = columns, fmt.Sprint(columns), now
		}
		err = facts.Check(x.table.String())
		table, unmapped := x.cfg.Mapping.Table(x.cfg.TableKeyspace, x.cfg.Table, seen.columns)
		misfit = misfit || unmapped != nil
		switch before := x.setTableErr(cmp.Or(err, unmapped)); {
		case err == nil && unmapped == nil && before != nil:
			x.log.Warn("the CDC log receives new events again")
		case err != nil && before == nil:
			x.log.Error("the CDC log receives no new events, so they are not published", "err", err)
		case unmapped != nil && before == nil:
			x.log.Error("the table does not fit its mapping; new events wait in the CDC log until it does", "err", unmapped)
		}
		if err := x.fill.Observe(facts, seen.text, err == nil); err != nil {
			x.fail(err)
			return suture.ErrDoNotRestart
		}
		held := x.streams.HeldCount() > 0 && (misfit || time.Since(began) >= heldAtMost)
		if err == nil && unmapped == nil && (held || !reflect.DeepEqual(table, x.table)) {
			x.fail(errAltered)
			return suture.ErrDoNotRestart
		}
	}
	return context.Cause(ctx)
}

// blameTable adds errAltered, which ends the pass instead of the relay, to an error of a statement
// that the database refuses as invalid, if the outbox table is not that with which the pass began:
// a lookup by key names the columns of then. It returns other errors unchanged. It waits up to
// schemaSettles for the difference, because the node that is asked may learn of an ALTER TABLE
// later than the node that refused.
func (x *pass) blameTable(ctx context.Context, err error) error {
	if x.lookup == nil || cqlcode.Of(err) != gocql.ErrCodeInvalid {
		return err
	}
	for until := time.Now().Add(schemaSettles); ; {
		table, facts, unread := readTable(ctx, &x.cfg)
		switch {
		case isMisfit(unread), unread == nil && (facts != x.facts || !reflect.DeepEqual(table, x.table)):
			return fmt.Errorf("%w: %w", errAltered, err)
		case unread != nil && failure.Classify(unread) == failure.Fatal, unread == nil && !time.Now().Before(until):
			return err
		}
		if retry.Wait(ctx, time.Second) != nil {
			return err
		}
	}
}

// reportGap reports a gap of the CDC log, once.
func (r *Relay) reportGap(g backfill.Gap) {
	say, fix := r.log.Warn, "none: the outbox table is scanned for them"
	if !g.Scanned {
		say, fix = r.log.Error, r.missedFix()
	}
	r.mu.Lock()
	again := r.gap != nil && r.gap.Scanned == g.Scanned && !g.From.After(r.gap.Until) && !r.gap.Until.IsZero() && !g.Until.After(r.gap.Until)
	if !again {
		r.gap, r.gapAt, r.gapFix = &g, time.Now(), fix
	}
	r.mu.Unlock()
	if again {
		return
	}
	r.metrics.logGaps.Inc()
	say("the table was altered; if CDC was off or the CDC log was dropped, events of that time are in the table only",
		"written_from", g.From.UTC(), "written_until", g.Until.UTC(), "fix", fix)
}

// missedFix returns how to publish events that are in the table but not in its log.
func (r *Relay) missedFix() string {
	if r.table.Numbered() {
		return "start the relay with --backfill-from and the time written_from"
	}
	return "write them again: only tables with sequence numbers can be scanned"
}

// setTableErr sets the problem of the table's CDC log and returns the previous one.
func (r *Relay) setTableErr(err error) (before error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.tableErr = r.tableErr, err
	return before
}
