package ddl

import (
	"errors"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// errNoKeyspace is the error for a name without keyspace on a connection without one.
var errNoKeyspace = cqlerr.Invalidf("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")

// Is reports whether stmt is a schema statement.
func Is(stmt cql.Statement) bool {
	switch stmt.(type) {
	case *cql.CreateKeyspace, *cql.AlterKeyspace, *cql.DropKeyspace,
		*cql.CreateTable, *cql.AlterTable, *cql.DropTable, *cql.Truncate,
		*cql.CreateIndex, *cql.DropIndex,
		*cql.CreateType, *cql.AlterType, *cql.DropType,
		*cql.CreateView, *cql.AlterView, *cql.DropView:
		return true
	}
	return false
}

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
	case err != nil:
		return nil, err
	}
	return w.commit()
}

// errNothing ends a statement that IF [NOT] EXISTS makes a no-op, or one that changes
// no schema.
var errNothing = errors.New("nothing to do")

func (w *change) apply(keyspace string, stmt cql.Statement) error {
	switch s := stmt.(type) {
	case *cql.CreateKeyspace:
		return w.createKeyspace(s)
	case *cql.AlterKeyspace:
		return w.alterKeyspace(s)
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
	case *cql.CreateIndex:
		return w.createIndex(keyspace, s)
	case *cql.DropIndex:
		return w.dropIndex(keyspace, s)
	case *cql.CreateType:
		return w.createType(keyspace, s)
	case *cql.AlterType:
		return w.alterType(keyspace, s)
	case *cql.DropType:
		return w.dropType(keyspace, s)
	case *cql.CreateView:
		return w.createView(keyspace, s)
	case *cql.AlterView:
		return w.alterView(keyspace, s)
	case *cql.DropView:
		return w.dropView(keyspace, s)
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
	if system.Protected(n.Keyspace) {
		return n, errProtected(n.Keyspace)
	}
	return n, nil
}

func errProtected(keyspace string) error {
	return cqlerr.New(cqlerr.Unauthorized, "%s keyspace is not user-modifiable.", keyspace)
}

// table finds a table for a change.
func (w *change) table(n cql.Name) (*catalog.Table, error) {
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

// base returns the table whose log t is, nil if t is not a log or its base does not
// exist.
func (w *change) base(t *catalog.Table) *catalog.Table {
	if t.Kind != catalog.CDCLog {
		return nil
	}
	for _, b := range w.next.Keyspaces[t.Keyspace].Tables {
		if b != t && catalog.LogName(b.Name) == t.Name {
			return b
		}
	}
	return nil
}

// activeLog reports whether t is the log of a table whose CDC is on.
func (w *change) activeLog(t *catalog.Table) bool {
	b := w.base(t)
	return b != nil && b.CDC != nil && b.CDC.Enabled
}

// log returns the log of t, attached or left over, nil if there is none.
func (w *change) log(t *catalog.Table) *catalog.Table {
	l := w.next.Keyspaces[t.Keyspace].Tables[catalog.LogName(t.Name)]
	if l == nil || l.Kind != catalog.CDCLog {
		return nil
	}
	return l
}
