package expr

import "github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"

// Errors of more than one statement.
var (
	ErrNeedsFiltering = cqlerr.Invalidf("Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING")
	ErrNullKey        = cqlerr.Invalidf("Invalid null value in condition for a key column")
	errNullElement    = cqlerr.Invalidf("null is not supported inside collections")
	errUnsetElement   = cqlerr.Invalidf("unset value is not supported inside collections")
)
