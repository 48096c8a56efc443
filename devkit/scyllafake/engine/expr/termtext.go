package expr

import (
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
)

func itoa(i int) string { return strconv.Itoa(i) }

// TermText formats a term as in ScyllaDB's messages.
func TermText(t cql.Term) string {
	var b strings.Builder
	writeTerm(&b, t)
	return b.String()
}

func writeTerm(b *strings.Builder, t cql.Term) {
	switch t := t.(type) {
	case cql.Null:
		b.WriteString("null")
	case cql.Marker:
		b.WriteByte('?')
	case cql.Literal:
		switch t.Kind {
		case cql.LitString:
			b.WriteString("'" + t.Text + "'")
		case cql.LitHex:
			b.WriteString("0x" + t.Text)
		default:
			b.WriteString(t.Text)
		}
	case cql.ListLit:
		writeTerms(b, '[', ']', t.Elems)
	case cql.SetLit:
		writeTerms(b, '{', '}', t.Elems)
	case cql.TupleLit:
		writeTerms(b, '(', ')', t.Elems)
	case cql.MapLit:
		b.WriteByte('{')
		for i := range t.Keys {
			comma(b, i)
			writeTerm(b, t.Keys[i])
			b.WriteString(": ")
			writeTerm(b, t.Values[i])
		}
		b.WriteByte('}')
	case cql.FuncCall:
		b.WriteString(t.Name.Name)
		writeTerms(b, '(', ')', t.Args)
	case cql.ColumnRef:
		b.WriteString(t.Column)
	}
}

func comma(b *strings.Builder, i int) {
	if i > 0 {
		b.WriteString(", ")
	}
}

func writeTerms(b *strings.Builder, open, end byte, terms []cql.Term) {
	b.WriteByte(open)
	for i, t := range terms {
		comma(b, i)
		writeTerm(b, t)
	}
	b.WriteByte(end)
}

// OpTexts contains the texts of operators.
var OpTexts = map[cql.Op]string{
	cql.OpEQ: "=", cql.OpNE: "!=", cql.OpLT: "<", cql.OpLE: "<=", cql.OpGT: ">", cql.OpGE: ">=",
	cql.OpIn: "IN",
}

// relationText formats a relation as in ScyllaDB's messages.
func relationText(r *cql.Relation) string {
	left := strings.Join(r.Columns, ", ")
	switch {
	case r.Token:
		left = "token(" + left + ")"
	case r.Multi:
		left = "(" + left + ")"
	}
	right := "null"
	switch {
	case r.Value != nil:
		right = TermText(r.Value)
	case r.Op == cql.OpIn:
		var b strings.Builder
		writeTerms(&b, '(', ')', r.In)
		right = b.String()
	}
	return left + " " + OpTexts[r.Op] + " " + right
}
