package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// fits reports whether a constant of l's class can be assigned to a t.
func fits(l cql.Literal, t *cqltype.Type) bool { return t.Accepts(l.Kind) }

// literal serialises a constant for recv.
func literal(l cql.Literal, recv ColumnSpec) ([]byte, error) {
	if !fits(l, recv.Type) {
		return nil, cqlerr.Invalidf("Invalid %s constant (%s) for \"%s\" of type %s",
			l.Kind, l.Text, recv.Name, recv.Type)
	}
	return recv.Type.FromText(l.Text)
}
