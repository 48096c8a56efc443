package engine

import (
	"errors"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// ErrDisconnect asks the server to close the connection without an answer. A
// Hook causes it.
var ErrDisconnect = errors.New("engine: close the connection")

// ErrNotBatchable is the answer to a BATCH that holds anything but INSERT,
// UPDATE and DELETE. The server gives it for statements that the engine never
// sees.
var ErrNotBatchable = cqlerr.Invalidf("Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.")

// Refusals that more than one statement can meet.
var (
	errNeedsFiltering = cqlerr.Invalidf("Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING")
	errNullKey        = cqlerr.Invalidf("Invalid null value in condition for a key column")
	errEmptyKey       = cqlerr.Invalidf("Key may not be empty")
	errNullElement    = cqlerr.Invalidf("null is not supported inside collections")
	errUnsetElement   = cqlerr.Invalidf("unset value is not supported inside collections")
	errCounters       = cqlerr.Unsupported("counters")
)

// serverError wraps a failure below CQL, of the disk for instance.
func serverError(doing string, err error) error {
	return cqlerr.New(cqlerr.Server, "%s: %v", doing, err)
}
