package engine

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// planner plans one statement.
type planner struct{ *expr.Compiler }

// finish returns the plan.
func (p *planner) finish(exec any, result []ColumnSpec) *Plan {
	plan := &Plan{Binds: p.Binds, Result: result, exec: exec}
	if p.Table != nil {
		plan.Tables = []*catalog.Table{p.Table}
		plan.PKIndexes = p.keyIndexes(p.Table)
	}
	plan.GlobalBinds = oneTable(p.Binds)
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
		for j := len(p.Targets) - 1; j >= 0; j-- {
			if p.Targets[j] == c {
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
