package cql

import (
	"iter"
)

// Statement is one parsed CQL statement: one of the pointer types below.
type Statement interface{ statement() }

// Name is a keyspace-qualified object name. Keyspace is empty when the text has none.
// Unquoted identifiers are already folded to lower case.
type Name struct{ Keyspace, Name string }

// Binds describes the bind markers of a statement in order of appearance. A named
// marker that appears twice is one entry, as in ScyllaDB.
type Binds struct {
	// Names contains "" for a plain "?" and the name for ":name".
	Names []string
}

// Term is a value expression: one of Literal, Null, Marker, ListLit, SetLit,
// MapLit, TupleLit, FuncCall, ColumnRef (only where the grammar allows it).
type Term interface{ term() }

// LiteralKind is the lexical class of a Literal.
type LiteralKind uint8

// The lexical classes.
const (
	LitString LiteralKind = iota
	LitInteger
	LitFloat // also NaN and Infinity
	LitBool
	LitUUID
	LitHex // 0x…
	LitDuration
)

// String returns the name of the class in ScyllaDB's messages.
func (k LiteralKind) String() string {
	return [...]string{"STRING", "INTEGER", "FLOAT", "BOOLEAN", "UUID", "HEX", "DURATION"}[k]
}

// Literal is a constant; Text is unquoted and unescaped, hex without 0x.
type Literal struct {
	Kind LiteralKind
	Text string
}

type (
	// Null is the keyword null.
	Null struct{}
	// Marker is a bind marker; Index is its position in Binds.Names.
	Marker struct{ Index int }
	// ListLit is [a, b].
	ListLit struct{ Elems []Term }
	// SetLit is {a, b}; an empty {} is a SetLit without elements.
	SetLit struct{ Elems []Term }
	// MapLit is {k: v}.
	MapLit struct{ Keys, Values []Term }
	// TupleLit is (a, b) as a value; a one-element tuple has one Elem.
	TupleLit struct{ Elems []Term }
	// FuncCall is f(args). Name.Keyspace is usually empty.
	FuncCall struct {
		Name Name
		Args []Term
	}
	// ColumnRef is a column as a function argument in a select clause.
	ColumnRef struct{ Column string }
)

func (Literal) term()   {}
func (Null) term()      {}
func (Marker) term()    {}
func (ListLit) term()   {}
func (SetLit) term()    {}
func (MapLit) term()    {}
func (TupleLit) term()  {}
func (FuncCall) term()  {}
func (ColumnRef) term() {}

// Op is a relation operator.
type Op uint8

// The relation operators.
const (
	OpEQ Op = iota
	OpNE
	OpLT
	OpLE
	OpGT
	OpGE
	OpIn
)

// Relation is one term of a WHERE or IF clause.
type Relation struct {
	// Columns is the left side: one column, or several for (a, b) > (1, 2).
	Columns []string
	// Multi is set when the left side was parenthesised, even with one column.
	Multi bool
	// Token is set for token(a, b).
	Token bool
	Op    Op
	// Value is the right side. For OpIn it is nil when In lists the members;
	// "IN ?" has Value set to a Marker.
	Value Term
	In    []Term
}

// Selector is one element of a select clause.
type Selector struct {
	// Expr is ColumnRef or FuncCall (writetime, ttl, count, token, now, …; count(*) and
	// count(1) are FuncCall{Name: count} without arguments).
	Expr  Term
	Alias string
}

// Order is one ORDER BY column.
type Order struct {
	Column string
	Desc   bool
}

// Select is a SELECT statement.
type Select struct {
	Binds     Binds
	Distinct  bool
	Star      bool
	Selectors []Selector
	From      Name
	Where     []Relation
	OrderBy   []Order
	// PerPartitionLimit, Limit and Timeout are nil when absent. Timeout is a
	// duration Literal or Marker.
	PerPartitionLimit, Limit Term
	AllowFiltering           bool
	BypassCache              bool
	Timeout                  Term
	// TTL and Timestamp are set by USING TTL and USING TIMESTAMP, which the grammar
	// accepts and ScyllaDB refuses: "Specifying TTL is not legal for SELECT statement".
	TTL, Timestamp Term
}

// Using is the USING clause of a modification; nil means absent.
type Using struct{ Timestamp, TTL, Timeout Term }

// Cond is the IF clause of a conditional statement.
type Cond struct {
	// Exists and NotExists are IF EXISTS and IF NOT EXISTS.
	Exists, NotExists bool
	// Columns are the conditions of IF a = 1 AND b > 2.
	Columns []Relation
}

// Insert is an INSERT statement.
type Insert struct {
	Binds   Binds
	Table   Name
	Columns []string
	Values  []Term
	If      *Cond
	Using   Using
}

// AssignKind is the form of an assignment.
type AssignKind uint8

// The assignment forms.
const (
	AssignSet    AssignKind = iota // c = term
	AssignAppend                   // c = c + term, c += term
	AssignRemove                   // c = c - term, c -= term
	AssignElem                     // c[elem] = term
)

// Assignment is one element of a SET clause.
type Assignment struct {
	Column string
	Kind   AssignKind
	Elem   Term
	Value  Term
}

// Update is an UPDATE statement.
type Update struct {
	Binds Binds
	Table Name
	Set   []Assignment
	Where []Relation
	If    *Cond
	Using Using
}

// DeleteTarget is one element of a DELETE's column list.
type DeleteTarget struct {
	Column string
	Elem   Term
}

// Delete is a DELETE statement; no Targets deletes rows.
type Delete struct {
	Binds   Binds
	Targets []DeleteTarget
	Table   Name
	Where   []Relation
	If      *Cond
	Using   Using
}

// BatchKind is the type of a batch, numbered as in the protocol.
type BatchKind uint8

// The batch types.
const (
	BatchLogged BatchKind = iota
	BatchUnlogged
	BatchCounter
)

// Batch is BEGIN … APPLY BATCH. Markers of the statements are numbered
// through; the Binds of the inner statements are empty.
type Batch struct {
	Binds      Binds
	Kind       BatchKind
	Using      Using
	Statements []Statement // *Insert, *Update, *Delete
}

// Property is one name = value of a WITH clause. Map is set for {…} values;
// otherwise Value is a Literal (LitString, LitInteger, …) or an identifier as LitString.
type Property struct {
	Name  string
	Value Literal
	Map   []PropertyEntry
	IsMap bool
}

// PropertyEntry is one key: value of a map property, in source order.
type PropertyEntry struct{ Key, Value Literal }

// ColumnDef is a column of CREATE TABLE or ALTER TABLE ADD; Type is CQL text.
type ColumnDef struct {
	Name       string
	Type       string
	Static     bool
	PrimaryKey bool
}

type (
	// Use is USE ks.
	Use struct{ Keyspace string }
	// CreateKeyspace is CREATE KEYSPACE.
	CreateKeyspace struct {
		IfNotExists bool
		Keyspace    string
		With        []Property
	}
	// DropKeyspace is DROP KEYSPACE.
	DropKeyspace struct {
		IfExists bool
		Keyspace string
	}
	// CreateTable is CREATE TABLE.
	CreateTable struct {
		IfNotExists    bool
		Table          Name
		Columns        []ColumnDef
		PartitionKey   []string // empty when a column carries PRIMARY KEY
		Clustering     []string
		ClusterOrder   []Order
		CompactStorage bool
		With           []Property
	}
	// AlterTable is ALTER TABLE; exactly one of its parts is set.
	AlterTable struct {
		Table Name
		Add   []ColumnDef
		Drop  []string
		With  []Property
	}
	// DropTable is DROP TABLE.
	DropTable struct {
		IfExists bool
		Table    Name
	}
	// Truncate is TRUNCATE [TABLE].
	Truncate struct{ Table Name }
	// Unsupported is a statement that uses a feature of ScyllaDB that this server lacks;
	// What names the feature.
	Unsupported struct{ What string }
)

func (*Select) statement()         {}
func (*Insert) statement()         {}
func (*Update) statement()         {}
func (*Delete) statement()         {}
func (*Batch) statement()          {}
func (*Use) statement()            {}
func (*CreateKeyspace) statement() {}
func (*DropKeyspace) statement()   {}
func (*CreateTable) statement()    {}
func (*AlterTable) statement()     {}
func (*DropTable) statement()      {}
func (*Truncate) statement()       {}
func (*Unsupported) statement()    {}

// Columns yields the names of the columns that a select expression refers to.
func Columns(t Term) iter.Seq[string] {
	return func(yield func(string) bool) { eachColumn(t, yield) }
}

func eachColumn(t Term, yield func(string) bool) bool {
	switch t := t.(type) {
	case ColumnRef:
		return yield(t.Column)
	case FuncCall:
		for _, arg := range t.Args {
			if !eachColumn(arg, yield) {
				return false
			}
		}
	}
	return true
}
