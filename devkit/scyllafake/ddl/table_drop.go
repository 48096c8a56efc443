package ddl

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

func (w *change) dropTable(keyspace string, s *cql.DropTable) error {
	n, err := resolve(keyspace, s.Table)
	if err != nil {
		return err
	}
	t, err := w.table(n)
	if err != nil {
		if s.IfExists {
			return errNothing
		}
		return err
	}
	switch {
	case t.Kind == catalog.View:
		return cqlerr.Invalidf("Cannot use DROP TABLE on Materialized View")
	case t.Kind == catalog.System:
		return cqlerr.New(cqlerr.Unauthorized, "Cannot DROP <table %s.%s>", n.Keyspace, n.Name)
	case w.activeLog(t):
		return cqlerr.New(cqlerr.Unauthorized, "Cannot DROP cdc log table <table %s.%s>", n.Keyspace, n.Name)
	}
	if err := w.checkDropBase(t); err != nil {
		return err
	}
	if base := w.base(t); base != nil {
		w.endStreams(base)
	}
	w.dropIndexViews(t)
	w.notify(catalog.Dropped, catalog.TargetTable, n.Keyspace, n.Name)
	w.answer(catalog.Dropped, catalog.TargetTable, n.Keyspace, n.Name)
	w.dropLog(t)
	w.forget(t)
	delete(w.keyspace(n.Keyspace).Tables, n.Name)
	return nil
}

// forget removes a table's rows from system_schema and its own from the store.
func (w *change) forget(t *catalog.Table) {
	w.removeTable(t)
	w.gone = append(w.gone, t)
}
