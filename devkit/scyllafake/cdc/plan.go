package cdc

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// plan maps a base table's columns to columns of its log.
type plan struct {
	base, log *catalog.Table
	cdc       *catalog.CDC // of the current schema
	tablets   bool

	operation, ttl, endOfBatch int32
	partitionKey, clustering   []int32
	columns                    []columnPlan // by base column ID
}

// columnPlan maps a static or regular base column to the log. An ID is missing when a
// user dropped the log's column, and shadowed when a column of another type has taken
// the name.
type columnPlan struct {
	column                   *catalog.Column
	value, deleted, elements int32
}

const (
	missing  int32 = -1
	shadowed int32 = -2
)

// planCache contains the plans made under one schema.
type planCache struct {
	schema *catalog.Schema
	plans  map[*catalog.Table]*plan
}

// plan returns the plan of a base table under the current schema, nil if it has no CDC
// now. The table may be an older version than the schema's: a statement is bound to the
// version for which it was prepared, and a later write, such as an unfinished Paxos
// round, is logged by the options of that later time.
func (m *Manager) plan(base *catalog.Table) (*plan, error) {
	schema := m.schema.Schema()
	cache := m.plans.Load()
	if cache != nil && cache.schema == schema {
		if p, ok := cache.plans[base]; ok {
			return p, nil
		}
	}
	p, err := newPlan(schema, base)
	if err != nil {
		return nil, err
	}
	next := &planCache{schema: schema, plans: map[*catalog.Table]*plan{base: p}}
	if cache != nil && cache.schema == schema {
		for t, o := range cache.plans {
			next.plans[t] = o
		}
	}
	// If a concurrent call wins, this plan is made again, without harm.
	m.plans.CompareAndSwap(cache, next)
	return p, nil
}

func newPlan(schema *catalog.Schema, base *catalog.Table) (*plan, error) {
	now, ok := schema.Table(base.Keyspace, base.Name)
	if !ok || now.ID != base.ID || now.CDC == nil || !now.CDC.Enabled {
		return nil, nil
	}
	name := catalog.LogName(base.Name)
	log, ok := schema.Table(base.Keyspace, name)
	if !ok || log.Kind != catalog.CDCLog {
		return nil, cqlerr.Invalidf("unconfigured table %s", name)
	}
	id := func(name string, t *cqltype.Type) int32 {
		c := log.ByName[name]
		switch {
		case c == nil || c.Kind != catalog.Regular:
			return missing
		case !c.Type.Equal(t):
			return shadowed
		}
		return c.ID
	}
	p := &plan{
		base: base, log: log, cdc: now.CDC,
		tablets:    schema.Keyspaces[base.Keyspace].Tablets,
		operation:  id(ColOperation, cqltype.TTinyInt),
		ttl:        id(ColTTL, cqltype.TBigInt),
		endOfBatch: id(ColEndOfBatch, cqltype.TBoolean),
		columns:    make([]columnPlan, base.NextColumnID),
	}
	for _, c := range base.PartitionKey {
		p.partitionKey = append(p.partitionKey, id(c.Name, c.Type))
	}
	for _, c := range base.Clustering {
		p.clustering = append(p.clustering, id(c.Name, c.Type))
	}
	for _, cols := range [][]*catalog.Column{base.Statics, base.Regulars} {
		for _, c := range cols {
			cp := columnPlan{
				column:   c,
				value:    id(c.Name, logType(c.Type)),
				deleted:  id(prefixDeleted+c.Name, cqltype.TBoolean),
				elements: shadowed,
			}
			if c.Type.IsMultiCell() {
				cp.elements = id(prefixElements+c.Name, cqltype.NewSet(elementKey(c.Type)).Freeze())
			}
			p.columns[c.ID] = cp
		}
	}
	return p, nil
}

// column returns the plan of a base column, nil if the table has no such column.
func (p *plan) column(id int32) *columnPlan {
	if int(id) >= len(p.columns) || p.columns[id].column == nil {
		return nil
	}
	return &p.columns[id]
}

// errMissing is the error when the log lacks a column that a row needs, which aborts a
// real node (5.1) or has this text (later releases).
func (p *plan) errMissing(name string) error {
	return cqlerr.Invalidf("CDC log schema for %s.%s does not have base column %s", p.log.Keyspace, p.log.Name, name)
}
