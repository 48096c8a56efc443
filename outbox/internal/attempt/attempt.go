// Package attempt has what attempts of conditional statements share: which errors leave
// an outcome unknown, the pauses between attempts, and no retries by the driver. It knows
// the errors of upstream's gocql and of ScyllaDB's fork.
package attempt

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"
)

const (
	// Max limits the attempts of one statement, other than to store a result: about three seconds of pauses.
	Max        = 10
	FirstPause = 10 * time.Millisecond
	MaxPause   = time.Second
)

// Pause waits before the attempt after the given number of attempts, longer each
// time, with jitter: proposers that contend for a partition must not retry
// together. It returns the cause of the end of ctx if that comes first.
func Pause(ctx context.Context, attempts int) error {
	d := min(FirstPause<<(min(attempts, Max)-1), MaxPause)
	return Sleep(ctx, d-rand.N(d/2+1))
}

// Sleep waits for d, or returns the cause of the end of ctx if that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Code returns the protocol's error code in err's chain; ok is false for errors
// of the driver itself. Upstream's errors have a method Code, the errors of
// ScyllaDB's driver a method GetCode.
func Code(err error) (code int, ok bool) {
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

// Invalid reports whether err means that a statement was not executed and can
// never succeed. After every other error the statement may have been applied, or
// may be applied later: a conditional write that timed out may be decided and
// still invisible.
func Invalid(err error) bool {
	if c, ok := Code(err); ok {
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

// NotExecuted reports whether err means that a conditional statement was not executed, though
// it may succeed later. The node refuses it before its first round if too few replicas live
// for the serial consistency; at another level the round may be decided.
func NotExecuted(err error) bool {
	if u, ok := errors.AsType[*gocql.RequestErrUnavailable](err); ok {
		return gocql.SerialConsistency(u.Consistency) == gocql.Serial || gocql.SerialConsistency(u.Consistency) == gocql.LocalSerial
	}
	if c, ok := Code(err); ok {
		return c == gocql.ErrCodeBootstrapping || c == gocql.ErrCodeUnprepared
	}
	for _, e := range []error{gocql.ErrNoConnections, gocql.ErrNoStreams} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Never is the retry policy of conditional statements. The driver's own retries
// would hide that an earlier attempt may have been applied.
type Never struct{}

// Attempt implements gocql.RetryPolicy.
func (Never) Attempt(gocql.RetryableQuery) bool { return false }

// GetRetryType implements gocql.RetryPolicy.
func (Never) GetRetryType(error) gocql.RetryType { return gocql.Rethrow }

// Serial returns the serial consistency level.
func Serial(local bool) gocql.SerialConsistency {
	if local {
		return gocql.LocalSerial
	}
	return gocql.Serial
}
