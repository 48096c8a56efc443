package dedup

import "github.com/gocql/gocql"

// Doubt records that an unknown event has a number that the aggregate has passed: its number
// was given twice, or its numbers begin again, as after the database was restored. Nothing
// follows from its line until Trust.
func (x *Lines) Doubt(aggregate gocql.UUID) {
	if x.doubts == nil {
		x.doubts = make(map[gocql.UUID]struct{})
	}
	x.doubts[aggregate] = struct{}{}
}

// Doubted reports whether the line of the aggregate is in doubt.
func (x *Lines) Doubted(aggregate gocql.UUID) bool {
	if len(x.doubts) == 0 {
		return false
	}
	_, ok := x.doubts[aggregate]
	return ok
}

// Trust ends the doubt about an aggregate that continues with next. It returns the line, and
// reports whether the numbers begin again: then the line begins with next, and no number is
// skipped.
func (x *Lines) Trust(aggregate gocql.UUID, l Line, next int64) (_ Line, again bool) {
	delete(x.doubts, aggregate)
	if next >= l.Next {
		return l, false
	}
	delete(x.gaps, aggregate)
	return Line{First: next, Next: next}, true
}
