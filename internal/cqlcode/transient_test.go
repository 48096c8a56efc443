package cqlcode

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

func TestTransient(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		gocql.ErrSessionClosed, gocql.ErrNotFound, context.Canceled, context.DeadlineExceeded,
		coded(gocql.ErrCodeInvalid), coded(gocql.ErrCodeSyntax), coded(gocql.ErrCodeUnauthorized),
	} {
		if Transient(err) {
			t.Errorf("%v is retried", err)
		}
	}
	for _, err := range []error{
		gocql.ErrTimeoutNoResponse, errors.New("connection reset"),
		coded(gocql.ErrCodeServer), coded(gocql.ErrCodeReadFailure), coded(gocql.ErrCodeReadTimeout), coded(gocql.ErrCodeUnavailable),
	} {
		if !Transient(err) {
			t.Errorf("%v is not retried", err)
		}
	}
}

// RetryTransient outlasts a wait of 10 s for the guard of the schema, and returns the error of
// its last call; a permanent error ends it.
func TestRetryTransient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), 0
		err := RetryTransient(t.Context(), SchemaChange, func() error {
			if calls++; time.Since(began) < 10*time.Second {
				return coded(gocql.ErrCodeServer)
			}
			return nil
		})
		if err != nil || calls > 10 {
			t.Errorf("after %d calls in %s: %v, want success", calls, time.Since(began), err)
		}
		calls = 0
		err = RetryTransient(t.Context(), SchemaChange, func() error { calls++; return coded(gocql.ErrCodeServer) })
		if Of(err) != gocql.ErrCodeServer || calls != len(pauses)+1 {
			t.Errorf("after %d calls: %v, want the server error after %d", calls, err, len(pauses)+1)
		}
		calls = 0
		err = RetryTransient(t.Context(), SchemaChange, func() error { calls++; return coded(gocql.ErrCodeInvalid) })
		if Of(err) != gocql.ErrCodeInvalid || calls != 1 {
			t.Errorf("an invalid statement was executed %d times: %v", calls, err)
		}
		calls = 0
		err = RetryTransient(t.Context(), TableDrop, func() error { calls++; return coded(gocql.ErrCodeServer) })
		if Of(err) != gocql.ErrCodeServer || calls != 4 {
			t.Errorf("a read of a virtual table failed %d times: %v, want 4", calls, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = RetryTransient(ctx, SchemaChange, func() error { cancel(); return coded(gocql.ErrCodeServer) })
		if Of(err) != gocql.ErrCodeServer {
			t.Errorf("a cancelled context: %v, want the error of the call", err)
		}
	})
}
