package relay

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// findTable learns what columns the outbox table has, however long the database
// is away. An *outbox.MappingError says that they do not fit.
func (r *Relay) findTable(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		t, err := readTable(ctx, &r.cfg)
		if err == nil {
			r.table, r.lookup = t, cqlLookup(r.cfg.Session, t)
			r.own = portionOf(r.cfg.Shard, t)
			if !t.Numbered() {
				r.log.Info("the outbox table has no sequence numbers; the order of an aggregate's events is that of their writes", "table", t.String())
			}
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case Classify(err) == Fatal:
			return err
		}
		if attempt == 3 { // the first ones may be a database that is just starting
			r.log.Warn("cannot read what columns the outbox table has; trying again", "err", err)
		}
		if err := again.Wait(ctx, r.cfg.askAgain(attempt)); err != nil {
			return err
		}
	}
}

// readTable reads the table's columns, and checks that it has a CDC log.
func readTable(ctx context.Context, cfg *Config) (outbox.Table, error) {
	name := cfg.TableKeyspace + "." + cfg.Table
	columns, err := outbox.ReadColumns(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table)
	if err != nil {
		return outbox.Table{}, err
	}
	if len(columns) == 0 {
		return outbox.Table{}, &outbox.MappingError{Table: name, Problem: "does not exist", Fix: "create it, or name another keyspace and table"}
	}
	log, err := outbox.ReadColumns(ctx, cfg.Session, cfg.TableKeyspace, cfg.Table+"_scylla_cdc_log")
	if err != nil {
		return outbox.Table{}, err
	}
	if len(log) == 0 {
		return outbox.Table{}, &outbox.MappingError{
			Table: name, Problem: "has no CDC log", Fix: "ALTER TABLE " + name + " WITH cdc = {'enabled': true, 'ttl': 259200}",
		}
	}
	return cfg.Mapping.Table(cfg.TableKeyspace, cfg.Table, columns)
}
