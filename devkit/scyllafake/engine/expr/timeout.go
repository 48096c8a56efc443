package expr

import (
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// CheckTimeout refuses an invalid USING TIMEOUT; t may be nil. No statement here takes long
// enough for a timeout.
func CheckTimeout(t cql.Term) error {
	if t == nil {
		return nil
	}
	l, ok := t.(cql.Literal)
	if !ok || l.Kind != cql.LitDuration {
		return cqlerr.Unsupported("USING TIMEOUT " + TermText(t) + ", a timeout that is not written as a number and a unit")
	}
	d, err := time.ParseDuration(strings.ToLower(l.Text))
	switch {
	case err != nil:
		return cqlerr.Invalidf("Timeout values cannot be expressed in days/months")
	case d%time.Millisecond != 0:
		return cqlerr.Invalidf("Timeout values cannot have granularity finer than milliseconds")
	case d < 0:
		return cqlerr.Invalidf("Timeout values must be non-negative")
	}
	return nil
}
