// Package ddl applies schema statements: it validates them, builds the next
// catalog.Schema, and keeps system_schema up to date.
//
// A Catalog holds the current schema. A statement is applied as one store.Apply, which
// writes together the rows of system_schema, the private entries from which the schema
// is loaded at the next start, and the changes of CDC streams. Statements are applied
// one at a time.
package ddl

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// Options configure a Catalog.
type Options struct {
	Store    *store.Store
	Topology *topology.Topology
	Version  catalog.Version
	// Tablets makes new keyspaces with NetworkTopologyStrategy use tablets by default.
	Tablets bool
	// Clock is the node's clock; nil means that of the host.
	Clock store.Clock
}

// Catalog is the current schema and the only way to change it. It is safe for
// concurrent use; reading the schema takes no lock.
type Catalog struct {
	o      Options
	schema atomic.Pointer[catalog.Schema]
	counts atomic.Pointer[tabletCounts] // the last ones

	mu          sync.Mutex // held by a statement while it is applied
	nextStoreID uint32
	lastWrite   int64 // the newest timestamp of rows of system_schema, µs
}

// Open loads the schema from the store, or begins with the system keyspaces only.
func Open(o Options) (*Catalog, error) {
	if o.Clock == nil {
		o.Clock = store.HostClock{}
	}
	if o.Tablets && !o.Version.HasTablets() {
		return nil, fmt.Errorf("tablets: ScyllaDB %v has none", o.Version)
	}
	c := &Catalog{o: o, nextStoreID: system.FirstStoreID}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return c, nil
}

// Schema returns the current schema. It is immutable; a statement replaces it.
func (c *Catalog) Schema() *catalog.Schema { return c.schema.Load() }

// Result is the result of a schema statement.
type Result struct {
	// Change is the change in the RESULT; nil means Void.
	Change *catalog.Change
	// Events are the events for other clients, in order, sent before the RESULT.
	Events []catalog.Change
	// Warnings are for the frame of the RESULT.
	Warnings []string
}

// purge removes the rows of a dropped table and the entry that requires it.
func (c *Catalog) purge(storeID uint32) error {
	if err := c.o.Store.DropTable(storeID); err != nil {
		return fmt.Errorf("remove the rows of a dropped table: %w", err)
	}
	if err := c.o.Store.Apply(nil, dropMeta(storeID, false)); err != nil {
		return fmt.Errorf("remove the rows of a dropped table: %w", err)
	}
	return nil
}
