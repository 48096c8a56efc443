package relay

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// findTable reads the columns of the outbox table. It retries while the database is
// unavailable. It returns an *outbox.MappingError if the columns do not match, in the first
// pass: once the table has matched, an ALTER TABLE ends no relay, and findTable waits until
// it matches again.
func (r *Relay) findTable(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		t, facts, err := readTable(ctx, &r.cfg)
		if err == nil {
			r.setTableErr(nil)
			r.setStuck(nil)
			r.table, r.facts, r.lookup = t, facts, cdclog.CQLLookup(r.cfg.Session, t)
			r.own = cdclog.NewPortion(r.cfg.Shard, t)
			if !t.Numbered() {
				r.log.Info("the outbox table has no sequence numbers; the order of an aggregate's events is that of their writes")
			}
			if err := facts.Outlives(t.String(), r.cfg.ConfidenceWindow); err != nil {
				r.log.Warn("events that the tail reader misses will be lost", "err", err)
			}
			return nil
		}
		misfit := isMisfit(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failure.Classify(err) == failure.Fatal && !r.cfg.AwaitTable && (r.lookup == nil || !misfit):
			return err
		}
		r.setStuck(err)
		switch {
		case attempt == 1 && misfit && r.cfg.AwaitTable && r.lookup == nil:
			r.log.Info("waiting for the outbox table", "err", err)
		case attempt == 1 && misfit, attempt == 3 && !misfit: // the database may be starting during the first attempts
			r.log.Warn("failed to read the columns of the outbox table; retrying", "err", err)
		}
		if err := retry.Wait(ctx, retry.Required(r.cfg.RetryMin, r.cfg.RetryMax, attempt)); err != nil {
			return err
		}
	}
}

// isMisfit reports whether err means that a table does not exist, does not match its mapping
// or has no CDC log of all columns.
func isMisfit(err error) bool {
	_, ok := errors.AsType[*outbox.MappingError](err)
	return ok
}

// readTable reads the table's columns, and checks that it has a CDC log.
func readTable(ctx context.Context, cfg *Config) (t outbox.Table, facts cdclog.TableInfo, err error) {
	name := cfg.TableKeyspace + "." + cfg.Table
	var columns, log []outbox.Column
	var g errgroup.Group // not one with a context: the errors below are in the order of their causes
	g.Go(func() (err error) {
		columns, err = outbox.ReadColumns(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table)
		return err
	})
	g.Go(func() (err error) {
		log, err = outbox.ReadColumns(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table+"_scylla_cdc_log")
		return err
	})
	var noFacts error
	g.Go(func() error {
		facts, noFacts = cdclog.ReadTableInfo(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table)
		return nil
	})
	if err := g.Wait(); err != nil {
		return t, facts, err
	}
	if len(columns) == 0 {
		return t, facts, &outbox.MappingError{Table: name, Problem: "does not exist", Fix: "create it, or name another keyspace and table"}
	}
	if len(log) == 0 {
		return t, facts, &outbox.MappingError{Table: name, Problem: "has no CDC log", Fix: cdclog.EnableCDC(name)}
	}
	err = noFacts
	if err != nil && !errors.Is(err, cdclog.ErrCDCOptions) { // the decision about a backfill reports those
		return t, facts, err
	}
	if err := facts.Check(name); err != nil {
		return t, facts, err
	}
	t, err = cfg.Mapping.Table(cfg.TableKeyspace, cfg.Table, columns)
	return t, facts, err
}

// CheckTable checks a configuration against its table and the table's CDC log, as the
// start of a relay does; a CDC log that keeps its rows too briefly, which a relay logs
// as a warning, is an error too. It writes nothing and does not wait.
//
// An *outbox.MappingError contains the problem and its fix.
func CheckTable(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	t, facts, err := readTable(ctx, &cfg)
	if err != nil {
		return err
	}
	return facts.Outlives(t.String(), cfg.ConfidenceWindow)
}
