package engine

import (
	"encoding/hex"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// modifyKind is the kind of a modification.
type modifyKind uint8

const (
	insertKind modifyKind = iota
	updateKind
	deleteKind
)

var kindNames = [...]string{"INSERT", "UPDATE", "DELETE"}

// modifyPlan is a planned INSERT, UPDATE or DELETE.
type modifyPlan struct {
	table *catalog.Table
	kind  modifyKind
	rest  *expr.Restrictions
	ops   []operation
	using using
	cond  *conditions

	setsStatic, setsRegular bool
	markers                 int
}

// onlyStatic reports whether only static columns are changed.
func (m *modifyPlan) onlyStatic() bool { return m.setsStatic && !m.setsRegular }

// using contains the compiled attributes; nil is absent.
type using struct{ timestamp, ttl expr.Term }

func (p *planner) planModify(s cql.Statement) (*Plan, error) {
	switch s := s.(type) {
	case *cql.Insert:
		p.Begin(s.Binds)
	case *cql.Update:
		p.Begin(s.Binds)
	case *cql.Delete:
		p.Begin(s.Binds)
	}
	m, err := p.modification(s)
	if err != nil {
		return nil, err
	}
	var result []ColumnSpec
	if m.cond != nil {
		result = conditionColumns(m.table, m.cond.columns(), false)
	}
	plan := p.finish(m, result)
	plan.LWT = m.cond != nil
	m.markers = len(plan.Binds)
	return plan, nil
}

// modification compiles a statement whose markers the planner already has.
func (p *planner) modification(s cql.Statement) (*modifyPlan, error) {
	switch s := s.(type) {
	case *cql.Insert:
		return p.insert(s)
	case *cql.Update:
		return p.update(s)
	case *cql.Delete:
		return p.delete(s)
	}
	return nil, ErrNotBatchable
}

func (p *planner) column(name string) (*catalog.Column, error) {
	if c := p.Table.ByName[name]; c != nil {
		return c, nil
	}
	return nil, cqlerr.Invalidf("Unknown identifier %s", name)
}

func (p *planner) usingClause(u cql.Using, conditional bool) (using, error) {
	var out using
	var err error
	if u.Timestamp != nil && conditional {
		return out, cqlerr.Invalidf("Cannot provide custom timestamp for conditional updates")
	}
	if u.Timestamp != nil {
		if out.timestamp, err = p.Term(u.Timestamp, p.Spec("[timestamp]", cqltype.TBigInt), nil); err != nil {
			return out, err
		}
	}
	if u.TTL != nil {
		if out.ttl, err = p.Term(u.TTL, p.Spec("[ttl]", cqltype.TInt), nil); err != nil {
			return out, err
		}
	}
	return out, expr.CheckTimeout(u.Timeout)
}

func (p *planner) insert(s *cql.Insert) (*modifyPlan, error) {
	if err := p.Resolve(s.Table); err != nil {
		return nil, err
	}
	m := &modifyPlan{table: p.Table, kind: insertKind}
	if len(s.Columns) != len(s.Values) {
		return nil, cqlerr.Invalidf("Unmatched column names/values")
	}
	var where []cql.Relation
	seen := map[string]bool{}
	for i, name := range s.Columns {
		c, err := p.column(name)
		if err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, cqlerr.Invalidf("Multiple definitions found for column %s", name)
		}
		seen[name] = true
		if c.Kind <= catalog.Clustering {
			where = append(where, cql.Relation{Columns: []string{name}, Op: cql.OpEQ, Value: s.Values[i]})
			continue
		}
		if err := p.assignment(m, c, cql.Assignment{Column: name, Value: s.Values[i]}); err != nil {
			return nil, err
		}
	}
	return m, p.complete(m, where, s.If, s.Using)
}

func (p *planner) update(s *cql.Update) (*modifyPlan, error) {
	if err := p.Resolve(s.Table); err != nil {
		return nil, err
	}
	m := &modifyPlan{table: p.Table, kind: updateKind}
	u, err := p.usingClause(s.Using, s.If != nil)
	if err != nil {
		return nil, err
	}
	m.using = u
	for _, a := range s.Set {
		c, err := p.column(a.Column)
		if err != nil {
			return nil, err
		}
		if c.Kind <= catalog.Clustering {
			return nil, cqlerr.Invalidf("PRIMARY KEY part %s found in SET part", c.Name)
		}
		if err := p.assignment(m, c, a); err != nil {
			return nil, err
		}
	}
	return m, p.complete(m, s.Where, s.If, cql.Using{})
}

func (p *planner) delete(s *cql.Delete) (*modifyPlan, error) {
	if err := p.Resolve(s.Table); err != nil {
		return nil, err
	}
	if s.Using.TTL != nil {
		return nil, cqlerr.Invalidf("TTL attribute is not allowed for deletes")
	}
	m := &modifyPlan{table: p.Table, kind: deleteKind}
	u, err := p.usingClause(s.Using, s.If != nil)
	if err != nil {
		return nil, err
	}
	m.using = u
	for _, t := range s.Targets {
		c, err := p.column(t.Column)
		if err != nil {
			return nil, err
		}
		if c.Kind <= catalog.Clustering {
			return nil, cqlerr.Invalidf("Invalid identifier %s for deletion (should not be a PRIMARY KEY part)", c.Name)
		}
		op, err := p.removal(c, t)
		if err != nil {
			return nil, err
		}
		m.add(op)
	}
	return m, p.complete(m, s.Where, s.If, cql.Using{})
}

// add adds an operation to the plan.
func (m *modifyPlan) add(op operation) {
	m.ops = append(m.ops, op)
	if op.column.Kind == catalog.Static {
		m.setsStatic = true
	} else {
		m.setsRegular = true
	}
}

// complete compiles the rest of a modification: WHERE, IF and, of an INSERT, USING.
func (p *planner) complete(m *modifyPlan, where []cql.Relation, cond *cql.Cond, u cql.Using) error {
	var err error
	if m.rest, err = p.Restrictions(where, false); err != nil {
		return err
	}
	if cond != nil {
		if m.cond, err = p.conditions(m, cond); err != nil {
			return err
		}
	}
	if m.kind == insertKind {
		if m.using, err = p.usingClause(u, cond != nil); err != nil {
			return err
		}
	}
	return p.checkWhere(m)
}

// checkWhere refuses a WHERE clause that does not fit the modification.
func (p *planner) checkWhere(m *modifyPlan) error {
	r := m.rest
	if len(r.Tokens) > 0 {
		return cqlerr.Invalidf("The token function cannot be used in WHERE clauses for %s statements", kindNames[m.kind])
	}
	if len(r.Filters) > 0 {
		return expr.ErrNeedsFiltering
	}
	if m.onlyStatic() && r.RestrictsRows() && m.kind != insertKind {
		return cqlerr.Invalidf("Invalid restrictions on clustering columns since the %s statement modifies only static columns", kindNames[m.kind])
	}
	if m.kind != deleteKind {
		if text := p.sliceText(r); text != "" {
			return cqlerr.Invalidf("Invalid operator in where clause %s", text)
		}
	}
	if free := r.FirstFree(); free != nil && !m.onlyStatic() {
		if m.kind != deleteKind {
			return cqlerr.Invalidf("Missing mandatory PRIMARY KEY part %s", free.Name)
		}
		for _, op := range m.ops {
			if op.column.Kind != catalog.Static {
				return cqlerr.Invalidf("Primary key column '%s' must be specified in order to modify column '%s'", free.Name, op.column.Name)
			}
		}
	}
	for i, list := range r.Keys {
		if len(list) == 0 {
			return cqlerr.Invalidf("Missing mandatory PRIMARY KEY part %s", p.Table.PartitionKey[i].Name)
		}
	}
	if m.kind == deleteKind && len(m.ops) > 0 && !m.onlyStatic() && !r.NamesRows() {
		return cqlerr.Invalidf("Range deletions are not supported for specific columns")
	}
	if m.cond != nil {
		return p.checkConditional(m)
	}
	return nil
}

// sliceText returns the clustering restriction with which an INSERT or UPDATE would
// name a range of rows; "" if there is none.
func (p *planner) sliceText(r *expr.Restrictions) string {
	write := func(rel *expr.Relation) string {
		names := make([]string, len(rel.Cols))
		for i, c := range rel.Cols {
			names[i] = c.Name
		}
		return "(" + strings.Join(names, ", ") + ") " + expr.OpTexts[rel.Op] + " " + constantText(rel)
	}
	for _, list := range append([][]*expr.Relation{r.Multi}, r.Rows...) {
		for _, rel := range list {
			if rel.Op != cql.OpEQ && rel.Op != cql.OpIn {
				return "(" + write(rel) + ")"
			}
		}
	}
	return ""
}

func constantText(rel *expr.Relation) string {
	if len(rel.Values) == 1 {
		if c, ok := rel.Values[0].(expr.Constant); ok {
			return "{ value: " + hex.EncodeToString(c.Bytes) + " }"
		}
	}
	return expr.TermText(rel.Text.Value)
}

// checkConditional refuses a conditional statement that may touch several rows, or a
// partition that its condition does not read.
func (p *planner) checkConditional(m *modifyPlan) error {
	what := "updates"
	if m.kind == deleteKind {
		what = "deletions"
	}
	switch {
	case m.rest.HasKeyIn():
		return cqlerr.Invalidf("IN on the partition key is not supported with conditional %s", what)
	case len(m.rest.Rows) > 0 && expr.HasIn(m.rest.Rows[len(m.rest.Rows)-1]):
		return cqlerr.Invalidf("IN on the clustering key columns is not supported with conditional %s", what)
	}
	if m.cond.regular && m.rest.FirstFree() != nil && m.onlyStatic() {
		return cqlerr.Invalidf("%s statements must restrict all PRIMARY KEY columns with equality relations in order to use IF condition on non static columns", kindNames[m.kind])
	}
	if m.kind == deleteKind && !m.onlyStatic() && len(p.Table.Clustering) > 0 && !m.rest.NamesRows() {
		return cqlerr.Invalidf("DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to delete non static columns")
	}
	return nil
}
