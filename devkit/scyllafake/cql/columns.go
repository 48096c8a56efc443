package cql

import "iter"

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
