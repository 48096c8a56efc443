package engine

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// conditions are a compiled IF clause.
type conditions struct {
	table             *catalog.Table
	exists, notExists bool
	list              []condition
	// static and regular are set if the clause reads static columns, or others. An
	// existence check of a statement without clustering key reads the static row.
	static, regular bool
}

// onlyStatic reports whether the clause reads the static row only.
func (c *conditions) onlyStatic() bool { return c.static && !c.regular }

// condition is one relation of an IF clause.
type condition struct {
	op     cql.Op
	col    *catalog.Column
	values []expr.Term // one, or all of IN (…)
	list   expr.Term   // of "IN ?"
}

// conditions compiles IF of a statement whose WHERE is compiled.
func (p *planner) conditions(m *modifyPlan, c *cql.Cond) (*conditions, error) {
	out := &conditions{table: p.Table, exists: c.Exists, notExists: c.NotExists}
	if c.Exists || c.NotExists {
		out.static = len(p.Table.Statics) > 0 && !m.rest.RestrictsRows()
		out.regular = !out.static
		return out, nil
	}
	for i := range c.Columns {
		cond, err := p.condition(&c.Columns[i])
		if err != nil {
			return nil, err
		}
		if cond.col.Kind == catalog.Static {
			out.static = true
		} else {
			out.regular = true
		}
		out.list = append(out.list, cond)
	}
	return out, nil
}

func (p *planner) condition(r *cql.Relation) (condition, error) {
	c, err := p.column(r.Columns[0])
	if err != nil {
		return condition{}, err
	}
	if c.Kind <= catalog.Clustering {
		return condition{}, cqlerr.Invalidf("PRIMARY KEY column '%s' cannot have IF conditions", c.Name)
	}
	if err := expr.CheckOrder(r.Op, c.Type); err != nil {
		return condition{}, err
	}
	out := condition{op: r.Op, col: c}
	values := r.In
	switch {
	case r.Op != cql.OpIn:
		values = []cql.Term{r.Value}
	case r.Value != nil:
		out.list, err = p.Term(r.Value, p.Spec("in("+c.Name+")", cqltype.NewList(c.Type.Freeze())), nil)
		return out, err
	}
	for _, t := range values {
		v, err := p.Term(t, p.ColumnSpec(c), nil)
		if err != nil {
			return out, err
		}
		out.values = append(out.values, v)
	}
	return out, nil
}

// columns returns the columns whose values the result shows; all for an existence
// check.
func (c *conditions) columns() map[*catalog.Column]bool {
	out := map[*catalog.Column]bool{}
	if c.exists || c.notExists {
		for _, col := range c.table.Columns() {
			out[col] = true
		}
	}
	for i := range c.list {
		out[c.list[i].col] = true
	}
	return out
}

// conditionColumns returns the result metadata: [applied], then the shown columns in
// table order, preceded by the key if keys is set.
func conditionColumns(t *catalog.Table, shown map[*catalog.Column]bool, keys bool) []ColumnSpec {
	spec := expr.ColumnSpec{Keyspace: t.Keyspace, Table: t.Name, Name: "[applied]", Type: cqltype.TBoolean}
	out := []ColumnSpec{spec}
	for _, c := range t.Columns() {
		if shown[c] || keys && c.Kind <= catalog.Clustering {
			spec.Name, spec.Type = c.Name, c.Type
			out = append(out, spec)
		}
	}
	return out
}

// hold reports whether the clause is satisfied. found is set if the row exists; v is
// empty if it does not.
func (c *conditions) hold(x *expr.EvalCtx, v *expr.RowView, found bool) (bool, error) {
	// For a statement that uses the static row only, a partition without static content
	// does not exist.
	exists := found && (!c.onlyStatic() || v.Static != nil)
	switch {
	case c.exists:
		return exists, nil
	case c.notExists:
		return !exists, nil
	}
	for i := range c.list {
		ok, err := c.list[i].holds(x, v)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func conditionValue(x *expr.EvalCtx, t expr.Term) ([]byte, error) {
	v, err := t.Eval(x)
	if err == nil && v.Unset {
		err = cqlerr.Invalidf("Invalid 'unset' value in condition")
	}
	return v.Bytes, err
}

// holds compares the row's value with the values in the condition. Null equals null, and
// is not ordered.
func (c *condition) holds(x *expr.EvalCtx, v *expr.RowView) (bool, error) {
	have, op := v.Value(c.col), c.op
	if op == cql.OpIn {
		op = cql.OpEQ
	}
	if c.list != nil {
		list, err := conditionValue(x, c.list)
		for e := range cqltype.Elements(list) {
			if ok, _ := compareCondition(op, c.col.Type, have, e); ok {
				return true, nil
			}
		}
		return false, err
	}
	for _, t := range c.values {
		want, err := conditionValue(x, t)
		if err != nil {
			return false, err
		}
		if ok, err := compareCondition(op, c.col.Type, have, emptyIsNull(c.col.Type, want)); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// emptyIsNull maps an empty collection to null where the column cannot distinguish
// them.
func emptyIsNull(t *cqltype.Type, v []byte) []byte {
	if t.IsMultiCell() && cqltype.Count(v) == 0 {
		return nil
	}
	return v
}

func compareCondition(op cql.Op, typ *cqltype.Type, have, want []byte) (bool, error) {
	if want == nil {
		switch op {
		case cql.OpEQ:
			return have == nil, nil
		case cql.OpNE:
			return have != nil, nil
		}
		return false, cqlerr.Invalidf("Invalid comparison with null for operator \"%s\"", expr.OpTexts[op])
	}
	if have == nil {
		return op == cql.OpNE, nil
	}
	return expr.Satisfies(op, typ.Compare(have, want)), nil
}
