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
	"time"

	"github.com/google/uuid"

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
	// Now is the node's clock; nil means time.Now.
	Now func() time.Time
}

// Catalog is the current schema and the only way to change it. It is safe for
// concurrent use; reading the schema takes no lock.
type Catalog struct {
	o      Options
	schema atomic.Pointer[catalog.Schema]

	mu          sync.Mutex // held by a statement while it is applied
	nextStoreID uint32
	lastWrite   int64 // the newest timestamp of rows of system_schema, µs
}

// Open loads the schema from the store, or begins with the system keyspaces only.
func Open(o Options) (*Catalog, error) {
	if o.Now == nil {
		o.Now = time.Now
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
}

// change is the state of a statement in progress.
type change struct {
	c      *Catalog
	next   *catalog.Schema
	owned  map[string]bool // keyspaces of next that were cloned already
	writes []*store.Mutation
	metas  []store.Meta
	events []catalog.Change
	result *catalog.Change
	// gone are the tables whose rows are to be removed.
	gone []*catalog.Table
	// streams are changes of CDC streams to put in force.
	streams []*topology.Change
	// at is the timestamp of the rows written, µs.
	at int64
}

// begin starts a change; c.mu is held.
func (c *Catalog) begin() *change {
	now := c.o.Now()
	c.lastWrite = max(c.lastWrite+2, now.UnixMicro())
	return &change{
		c: c, next: c.Schema().Clone(), owned: map[string]bool{}, at: c.lastWrite,
	}
}

// keyspace returns a keyspace of the next schema for changes.
func (w *change) keyspace(name string) *catalog.Keyspace {
	ks := w.next.Keyspaces[name]
	if ks == nil || w.owned[name] {
		return ks
	}
	ks = ks.Clone()
	w.next.Keyspaces[name] = ks
	w.owned[name] = true
	return ks
}

// notify adds an event.
func (w *change) notify(kind, target, keyspace, object string) {
	w.events = append(w.events, catalog.Change{Kind: kind, Target: target, Keyspace: keyspace, Object: object})
}

// answer sets the change in the RESULT.
func (w *change) answer(kind, target, keyspace, object string) {
	w.result = &catalog.Change{Kind: kind, Target: target, Keyspace: keyspace, Object: object}
}

// newID returns a timeuuid for a new table.
func (w *change) newID() uuid.UUID { return uuid.Must(uuid.NewUUID()) }

// newStoreID returns a storage number that no table had before.
func (w *change) newStoreID() uint32 {
	id := w.c.nextStoreID
	w.c.nextStoreID++
	return id
}

// commit stores the change and makes it the current schema.
func (w *change) commit() (*Result, error) {
	c := w.c
	w.next.Version = uuid.New()
	for _, t := range w.gone {
		w.metas = append(w.metas, dropMeta(t.StoreID, true))
	}
	for _, s := range w.streams {
		w.writes = append(w.writes, s.Mutations...)
		w.metas = append(w.metas, s.Metas...)
	}
	w.writes = append(w.writes, system.Insert(w.next.Keyspaces["system"].Tables["local"], w.at,
		system.Values{"key": "local", "schema_version": w.next.Version}))
	w.metas = append(w.metas, c.stateMeta(w.next.Version))
	if err := c.o.Store.Apply(w.writes, w.metas...); err != nil {
		return nil, fmt.Errorf("store the schema change: %w", err)
	}
	c.schema.Store(w.next)
	for _, s := range w.streams {
		s.Publish()
	}
	for _, t := range w.gone {
		if err := c.purge(t.StoreID); err != nil {
			return nil, err
		}
	}
	return &Result{Change: w.result, Events: w.events}, nil
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
