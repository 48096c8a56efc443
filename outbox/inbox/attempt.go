package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"
)

const (
	// maxAttempts limits the attempts of one statement, other than to store a result: about three seconds of pauses.
	maxAttempts = 10
	firstPause  = 10 * time.Millisecond
	maxPause    = time.Second
)

// pause waits before the attempt after the given number of attempts, longer each
// time, with jitter: proposers that contend for a partition must not retry
// together. It returns the cause of the end of ctx if that comes first.
func pause(ctx context.Context, attempts int) error {
	d := min(firstPause<<(min(attempts, maxAttempts)-1), maxPause)
	return sleep(ctx, d-rand.N(d/2+1))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// code returns the protocol's error code in err's chain; ok is false for errors
// of the driver itself. Upstream's errors have a method Code, the errors of
// ScyllaDB's driver a method GetCode.
func code(err error) (code int, ok bool) {
	if e, ok := errors.AsType[interface {
		error
		GetCode() int
	}](err); ok {
		return e.GetCode(), true
	}
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return e.Code(), true
	}
	return 0, false
}

// invalid reports whether err means that a statement was not executed and can
// never succeed. After every other error the statement may have been applied, or
// may be applied later: a conditional write that timed out may be decided and
// still invisible.
func invalid(err error) bool {
	if c, ok := code(err); ok {
		switch c {
		case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
			return true
		}
		return false
	}
	for _, e := range []error{gocql.ErrSessionClosed, gocql.ErrTooManyStmts, gocql.ErrQueryArgLength, gocql.ErrFrameTooBig} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, marshal := errors.AsType[gocql.MarshalError](err)
	return marshal
}

// never is the retry policy of conditional statements. The driver's own retries
// would hide that an earlier attempt may have been applied.
type never struct{}

// Attempt implements gocql.RetryPolicy.
func (never) Attempt(gocql.RetryableQuery) bool { return false }

// GetRetryType implements gocql.RetryPolicy.
func (never) GetRetryType(error) gocql.RetryType { return gocql.Rethrow }

// serial returns the serial consistency level.
func serial(local bool) gocql.SerialConsistency {
	if local {
		return gocql.LocalSerial
	}
	return gocql.Serial
}
