package ddl

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// CreatePaxos makes the table NAME$paxos of a table, as a node does at the first
// conditional statement or serial read of a table of a keyspace with tablets. If there
// is one, or the table was dropped meanwhile, the result has no events. The table stays
// empty: conditional statements keep no state here.
func (c *Catalog) CreatePaxos(base *catalog.Table) (*Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Schema().LacksPaxos(base) {
		return &Result{}, nil
	}
	w := c.begin()
	t := catalog.NewTable(base.Keyspace, catalog.PaxosName(base.Name))
	w.release.SetDefaults(&t.Options)
	t.Kind, t.ID, t.StoreID = catalog.Paxos, w.newID(), w.newStoreID()
	t.Options.Comment = "Paxos state for " + base.Keyspace + "." + base.Name
	t.Options.GCGraceSeconds = 0
	t.Add(catalog.Column{Name: "row_key", Type: cqltype.TBlob, Kind: catalog.PartitionKey})
	for _, name := range []string{"promise", "most_recent_commit_at", "proposal_ballot"} {
		t.Add(catalog.Column{Name: name, Type: cqltype.TTimeUUID, Kind: catalog.Regular})
	}
	for _, name := range []string{"most_recent_commit", "proposal"} {
		t.Add(catalog.Column{Name: name, Type: cqltype.TBlob, Kind: catalog.Regular})
	}
	w.keyspace(t.Keyspace).Tables[t.Name] = t
	w.putTable(t)
	w.notify(catalog.Created, catalog.TargetTable, t.Keyspace, t.Name)
	return w.commit()
}

// dropPaxos drops the table NAME$paxos of t, if there is one.
func (w *change) dropPaxos(t *catalog.Table) {
	p := w.next.Keyspaces[t.Keyspace].Tables[catalog.PaxosName(t.Name)]
	if p == nil {
		return
	}
	w.notify(catalog.Dropped, catalog.TargetTable, p.Keyspace, p.Name)
	w.forget(p)
	delete(w.keyspace(t.Keyspace).Tables, p.Name)
}
