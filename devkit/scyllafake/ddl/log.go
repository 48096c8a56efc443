package ddl

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cdc"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// syncLog updates the log of t, whose CDC is on, and adds the events. A new log in a
// keyspace with tablets gets its streams.
func (w *change) syncLog(t *catalog.Table) error {
	ks := w.keyspace(t.Keyspace)
	if err := w.checkLog(ks, t); err != nil {
		return err
	}
	old := ks.Log(t)
	id := cdc.Ident{}
	if old == nil {
		id = cdc.Ident{ID: w.newID(), StoreID: w.newStoreID()}
	}
	log, err := cdc.LogTable(t, old, id, w.at)
	if err != nil {
		return err
	}
	compaction := log.Options.Compaction
	w.release.SetDefaults(&log.Options)
	log.Options.Compaction = compaction
	ks.Tables[log.Name] = log
	w.putTable(log)
	if old != nil {
		w.notify(catalog.Updated, catalog.TargetTable, t.Keyspace, log.Name)
		return nil
	}
	w.notify(catalog.Created, catalog.TargetTable, t.Keyspace, log.Name)
	if !ks.Tablets {
		return nil
	}
	streams, err := w.c.o.Topology.CreateStreams(t, w.next.TabletCounts(w.c.sizing())[t])
	if err != nil {
		return cqlerr.Invalidf("%v", err)
	}
	w.streams = append(w.streams, streams)
	return nil
}

// checkLog refuses the tables that cannot have a log.
func (w *change) checkLog(ks *catalog.Keyspace, t *catalog.Table) error {
	switch {
	case ks.Base(t) != nil:
		return cqlerr.Invalidf("Cannot create a CDC log for a table %s.%s, because creating nested CDC logs is not allowed", t.Keyspace, t.Name)
	case ks.Tablets && !w.c.o.Version.HasCDCOnTablets():
		return cqlerr.Invalidf("Cannot create CDC log for a table %s.%s, because keyspace uses tablets. See issue #16317.", t.Keyspace, t.Name)
	}
	name := catalog.LogName(t.Name)
	if other := ks.Tables[name]; other != nil && other.Kind != catalog.CDCLog {
		return cqlerr.Invalidf("Cannot create CDC log table for table %s.%s because a table of name %s.%s already exists",
			t.Keyspace, t.Name, t.Keyspace, name)
	}
	return nil
}

// dropLog drops the log of t, if there is one, and its streams.
func (w *change) dropLog(t *catalog.Table) {
	log := w.next.Keyspaces[t.Keyspace].Log(t)
	if log == nil {
		return
	}
	w.notify(catalog.Dropped, catalog.TargetTable, log.Keyspace, log.Name)
	w.forget(log)
	delete(w.keyspace(t.Keyspace).Tables, log.Name)
	w.endStreams(t)
}

// endStreams removes the stream sets of a table in a keyspace with tablets.
func (w *change) endStreams(t *catalog.Table) {
	if w.next.Keyspaces[t.Keyspace].Tablets {
		w.streams = append(w.streams, w.c.o.Topology.DropStreams(t))
	}
}

// activeLog reports whether t is the log of a table whose CDC is on.
func (w *change) activeLog(t *catalog.Table) bool {
	b := w.next.Keyspaces[t.Keyspace].Base(t)
	return b != nil && b.CDC != nil && b.CDC.Enabled
}
