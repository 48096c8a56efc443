package engine

import (
	"errors"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// ErrDisconnect makes the server close the connection without a response. A Hook causes
// it.
var ErrDisconnect = errors.New("engine: close the connection")

// ErrNotBatchable is the error for a BATCH that contains anything but INSERT, UPDATE
// and DELETE. The server returns it for statements that the engine does not receive.
var ErrNotBatchable = cqlerr.Invalidf("Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.")

var errEmptyKey = cqlerr.Invalidf("Key may not be empty")

// serverError wraps a failure below CQL, for example of the disk.
func serverError(doing string, err error) error {
	return cqlerr.New(cqlerr.Server, "%s: %v", doing, err)
}
