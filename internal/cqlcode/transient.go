package cqlcode

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Bounds of RetryTransient.
const (
	// SchemaChange is for changes of the schema, which compete for one guard of the cluster.
	// Others may hold it for so long.
	SchemaChange = 20 * time.Second
	// TableDrop is for reads of system.cdc_timestamps and system.cdc_streams: a node fails
	// them for some 0.3 s while any table with CDC and tablets is dropped, in any keyspace.
	TableDrop = 2 * time.Second
)

// pauses are those between the attempts of RetryTransient.
var pauses = [...]time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second}

// RetryTransient calls f, and repeats it after transient errors until the pauses would exceed
// bound. f must be idempotent. It returns the error of the last call.
func RetryTransient(ctx context.Context, bound time.Duration, f func() error) error {
	err := f()
	for _, d := range pauses {
		if bound -= d; bound < 0 || err == nil || !Transient(err) || retry.Wait(ctx, d) != nil {
			return err
		}
		err = f()
	}
	return err
}

// Transient reports whether a statement that failed with err may succeed later. An invalid
// statement never will; a server error may be a change of the schema that lost a race.
func Transient(err error) bool {
	for _, final := range []error{context.Canceled, context.DeadlineExceeded, gocql.ErrSessionClosed, gocql.ErrNotFound} {
		if errors.Is(err, final) {
			return false
		}
	}
	switch Of(err) {
	case None: // the connection, or no answer in time
		return true
	case gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping,
		gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteFailure, gocql.ErrCodeReadFailure,
		gocql.ErrCodeCASWriteUnknown:
		return true
	}
	return false
}
