package orders

import (
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// fate is what a failed statement may have done.
type fate uint8

const (
	// fateDone: it succeeded.
	fateDone fate = iota
	// fateUnknown: it may have been applied, or may be applied later.
	fateUnknown
	// fateRefused: it was not executed and may succeed later.
	fateRefused
	// fateInvalid: it was not executed, and never will be as it is.
	fateInvalid
)

// fateOf is the one place that decides what an error says about a write. What is
// not known for sure to be harmless is unknown.
//
// A write timeout never says "not applied", whatever its write type: ScyllaDB
// may apply a batch that timed out with BATCH_LOG a minute later, and a
// conditional write that timed out with CAS may stand decided but invisible.
func fateOf(err error) fate {
	if err == nil {
		return fateDone
	}
	if code := cqlcode.Of(err); code != cqlcode.None {
		switch code {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping, gocql.ErrCodeUnprepared, cqlcode.RateLimit:
			return fateRefused
		case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
			return fateInvalid
		}
		return fateUnknown
	}
	var bad *outbox.InvalidEventError
	switch {
	case errors.As(err, &bad):
		return fateInvalid
	case errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrNoConnectionsInPool), errors.Is(err, gocql.ErrNoPool),
		errors.Is(err, gocql.ErrHostDown), errors.Is(err, gocql.ErrNoStreams), errors.Is(err, gocql.ErrSessionClosed):
		// The driver found no connection to write to, on this attempt; with
		// neverAgain there was no earlier one.
		return fateRefused
	}
	return fateUnknown
}

// neverAgain lets gocql try another node only while nothing was sent. Its
// default policy repeats timed-out writes behind the caller's back.
type neverAgain struct{}

// Attempt allows one try per node; the driver stops when it runs out of nodes.
func (neverAgain) Attempt(gocql.RetryableQuery) bool { return true }

// GetRetryType goes on to the next node only after errors that come before
// anything is sent.
func (neverAgain) GetRetryType(err error) gocql.RetryType {
	if cqlcode.Of(err) == cqlcode.None && fateOf(err) == fateRefused && !errors.Is(err, gocql.ErrSessionClosed) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// otherNode lets gocql ask another node once, for statements that only read.
type otherNode struct{}

// Attempt allows a second try.
func (otherNode) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= 2 }

// GetRetryType goes on to the next node unless the statement itself is wrong.
func (otherNode) GetRetryType(err error) gocql.RetryType {
	if fateOf(err) == fateInvalid {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}
