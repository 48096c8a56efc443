package engine

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// planner is the state of planning one statement.
type planner struct {
	schema   *catalog.Schema
	keyspace string // of the connection
	table    *catalog.Table

	names []string // of the markers, "" for plain ones
	binds []ColumnSpec
	// targets are the columns whose whole values markers are; they give the positions
	// of the partition key among the bound values.
	targets []*catalog.Column
}

func (p *planner) begin(b cql.Binds) {
	p.names = b.Names
	p.binds = make([]ColumnSpec, len(b.Names))
	p.targets = make([]*catalog.Column, len(b.Names))
}

// resolve finds the table of a statement and makes it the planner's.
func (p *planner) resolve(n cql.Name) error {
	ks := n.Keyspace
	if ks == "" {
		ks = p.keyspace
	}
	if ks == "" {
		return cqlerr.Invalidf("No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename")
	}
	if _, ok := p.schema.Keyspaces[ks]; !ok {
		return cqlerr.Invalidf("Keyspace %s does not exist", ks)
	}
	t, ok := p.schema.Table(ks, n.Name)
	if !ok {
		return cqlerr.Invalidf("unconfigured table %s", n.Name)
	}
	p.table = t
	return nil
}

// spec describes a value of the statement's table for the client.
func (p *planner) spec(name string, t *cqltype.Type) ColumnSpec {
	return ColumnSpec{Keyspace: p.table.Keyspace, Table: p.table.Name, Name: name, Type: t}
}

func (p *planner) columnSpec(c *catalog.Column) ColumnSpec { return p.spec(c.Name, c.Type) }

// marker records the type of a marker; target is the column if it is one column's
// value. Of a name used twice the last record counts.
func (p *planner) marker(index int, spec ColumnSpec, target *catalog.Column) {
	if name := p.names[index]; name != "" {
		spec.Name = name
	}
	p.binds[index] = spec
	p.targets[index] = target
}

// finish returns the plan.
func (p *planner) finish(exec any, result []ColumnSpec) *Plan {
	plan := &Plan{Binds: p.binds, Result: result, exec: exec}
	if p.table != nil {
		plan.Tables = []*catalog.Table{p.table}
		plan.PKIndexes = p.keyIndexes(p.table)
	}
	plan.GlobalBinds = oneTable(p.binds)
	return plan
}

func oneTable(specs []ColumnSpec) bool {
	for i := range specs {
		if specs[i].Keyspace != specs[0].Keyspace || specs[i].Table != specs[0].Table {
			return false
		}
	}
	return len(specs) > 0
}

// keyIndexes returns the last markers of each part of the partition key, or nil if one
// has none.
func (p *planner) keyIndexes(t *catalog.Table) []uint16 {
	out := make([]uint16, len(t.PartitionKey))
	found := 0
	for i, c := range t.PartitionKey {
		for j := len(p.targets) - 1; j >= 0; j-- {
			if p.targets[j] == c {
				out[i] = uint16(j)
				found++
				break
			}
		}
	}
	if found < len(out) {
		return nil
	}
	return out
}

// parseType parses a type; user-defined ones are of the table's keyspace.
func (p *planner) parseType(text string) (*cqltype.Type, error) {
	return cqltype.Parse(text, func(name string) (*cqltype.Type, error) {
		ks := p.schema.Keyspaces[p.table.Keyspace]
		if t := ks.Types[name]; t != nil {
			return t, nil
		}
		return nil, cqlerr.Invalidf("Unknown type %s.%s", ks.Name, name)
	})
}
