package ddl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// errNoKeyspace is the error for a name without keyspace on a connection without one.
var errNoKeyspace = cqlerr.Invalidf("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")

// Execute applies a statement; keyspace is the connection's, "" if none. Errors for the
// client are *cqlerr.Error; after any other the outcome is unknown.
func (c *Catalog) Execute(keyspace string, stmt cql.Statement) (*Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.begin()
	err := w.apply(keyspace, stmt)
	switch {
	case errors.Is(err, errNothing):
		return &Result{}, nil
	case errors.Is(err, errExists):
		return &Result{Change: w.result, Warnings: w.warnings}, nil
	case err != nil:
		return nil, err
	}
	return w.commit()
}

// errExists ends a CREATE … IF NOT EXISTS of an object that exists: newer releases answer
// as if they had made it, without an event.
var errExists = errors.New("it exists")

// exists ends a CREATE … IF NOT EXISTS of an object that exists.
func (w *change) exists(target, keyspace, object string) error {
	if !w.release.AtLeast(2025, 4) {
		return errNothing
	}
	w.answer(catalog.Created, target, keyspace, object)
	return errExists
}

// errNothing ends a statement that IF [NOT] EXISTS makes a no-op, or one that changes
// no schema.
var errNothing = errors.New("nothing to do")

func (w *change) apply(keyspace string, stmt cql.Statement) error {
	switch s := stmt.(type) {
	case *cql.CreateKeyspace:
		return w.createKeyspace(s)
	case *cql.DropKeyspace:
		return w.dropKeyspace(s)
	case *cql.CreateTable:
		return w.createTable(keyspace, s)
	case *cql.AlterTable:
		return w.alterTable(keyspace, s)
	case *cql.DropTable:
		return w.dropTable(keyspace, s)
	case *cql.Truncate:
		return w.truncate(keyspace, s)
	}
	return cqlerr.Unsupported("this statement")
}

// resolve completes a name with the connection's keyspace and refuses the keyspaces
// that cannot be changed.
func resolve(keyspace string, n cql.Name) (cql.Name, error) {
	if n.Keyspace == "" {
		n.Keyspace = keyspace
	}
	if n.Keyspace == "" {
		return n, errNoKeyspace
	}
	if system.IsProtected(n.Keyspace) {
		return n, errProtected(n.Keyspace)
	}
	return n, nil
}

func errProtected(keyspace string) error {
	return cqlerr.New(cqlerr.Unauthorized, "%s keyspace is not user-modifiable.", keyspace)
}

// table finds a table for a change; keyspace is the connection's.
func (w *change) table(keyspace string, n cql.Name) (*catalog.Table, error) {
	n, err := resolve(keyspace, n)
	if err != nil {
		return nil, err
	}
	ks := w.next.Keyspaces[n.Keyspace]
	if ks == nil {
		return nil, cqlerr.Invalidf("Keyspace %s does not exist", n.Keyspace)
	}
	t := ks.Tables[n.Name]
	if t == nil {
		return nil, cqlerr.Invalidf("unconfigured table %s", n.Name)
	}
	return t, nil
}

// change is the state of a statement in progress.
type change struct {
	schemaRows

	c        *Catalog
	owned    map[string]bool // keyspaces of next that were cloned already
	events   []catalog.Change
	result   *catalog.Change
	warnings []string
	// gone are the tables whose rows are to be removed.
	gone []*catalog.Table
	// streams are changes of CDC streams to put in force.
	streams []*topology.Change
}

// begin starts a change; c.mu is held.
func (c *Catalog) begin() *change {
	now := c.o.Clock.Now()
	c.lastWrite = max(c.lastWrite+2, now.UnixMicro())
	return &change{
		schemaRows: schemaRows{next: c.Schema().Clone(), at: c.lastWrite, release: c.o.Version},
		c:          c, owned: map[string]bool{},
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

// publish adds an event and sets it in the RESULT.
func (w *change) publish(kind, target, keyspace, object string) {
	w.notify(kind, target, keyspace, object)
	w.answer(kind, target, keyspace, object)
}

// newID returns a timeuuid for a new table. Its time is that of the statement by the node's
// clock, as the write times of system_schema are: clients compare the two.
func (w *change) newID() uuid.UUID {
	random := uuid.New()
	return cqltype.TimeUUIDAt(w.at, binary.BigEndian.Uint64(random[8:]))
}

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
	return &Result{Change: w.result, Events: w.events, Warnings: w.warnings}, nil
}
