package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Compiler compiles the terms, relations and restrictions of one statement.
type Compiler struct {
	Schema   *catalog.Schema
	Keyspace string // of the connection
	Table    *catalog.Table

	names []string // of the markers, "" for plain ones
	Binds []ColumnSpec
	// Targets are the columns whose whole values markers are; they give the positions
	// of the partition key among the bound values.
	Targets []*catalog.Column
}

// Begin begins a statement with these markers.
func (p *Compiler) Begin(b cql.Binds) {
	p.names = b.Names
	p.Binds = make([]ColumnSpec, len(b.Names))
	p.Targets = make([]*catalog.Column, len(b.Names))
}

// Resolve finds the table of a statement and makes it the compiler's.
func (p *Compiler) Resolve(n cql.Name) error {
	ks := n.Keyspace
	if ks == "" {
		ks = p.Keyspace
	}
	if ks == "" {
		return cqlerr.Invalidf("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
	}
	if _, ok := p.Schema.Keyspaces[ks]; !ok {
		return cqlerr.Invalidf("Keyspace %s does not exist", ks)
	}
	t, ok := p.Schema.Table(ks, n.Name)
	if !ok {
		return cqlerr.Invalidf("unconfigured table %s", n.Name)
	}
	if t.Kind == catalog.Paxos {
		return cqlerr.ErrPaxosTable
	}
	p.Table = t
	return nil
}

// Spec describes a value of the statement's table for the client.
func (p *Compiler) Spec(name string, t *cqltype.Type) ColumnSpec {
	return ColumnSpec{Keyspace: p.Table.Keyspace, Table: p.Table.Name, Name: name, Type: t}
}

// ColumnSpec describes a column for the client.
func (p *Compiler) ColumnSpec(c *catalog.Column) ColumnSpec { return p.Spec(c.Name, c.Type) }

// marker records the type of a marker; target is the column if it is one column's
// value. Of a name used twice the last record counts.
func (p *Compiler) marker(index int, spec ColumnSpec, target *catalog.Column) {
	if name := p.names[index]; name != "" {
		spec.Name = name
	}
	p.Binds[index] = spec
	p.Targets[index] = target
}

// ColumnSpec is a bind or result column.
type ColumnSpec struct {
	Keyspace, Table, Name string
	Type                  *cqltype.Type
}

// Value is a bound value.
type Value struct {
	Bytes []byte // nil is null
	Unset bool
}
