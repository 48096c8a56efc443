package cqlcode

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/gocql/gocql"
)

// Fate is what a failed statement may have done.
type Fate uint8

// The fates of a statement.
const (
	// Done: it succeeded.
	Done Fate = iota
	// Unknown: it may have been applied, or may be applied later.
	Unknown
	// Refused: it was not executed and may succeed later.
	Refused
	// Invalid: it was not executed, and never will be as it is.
	Invalid
)

// Fates are all of them.
var Fates = []Fate{Done, Unknown, Refused, Invalid}

// String is the fate as metrics name it.
func (f Fate) String() string {
	return [...]string{Done: "done", Unknown: "unknown", Refused: "refused", Invalid: "invalid"}[f]
}

// FateOf is the one place that decides what an error of the driver says about a
// write. What is not known for sure to be harmless is unknown.
//
// A write timeout never says "not applied", whatever its write type: ScyllaDB
// may apply a batch that timed out with BATCH_LOG a minute later, and a
// conditional write that timed out with CAS may stand decided but invisible.
func FateOf(err error) Fate {
	if err == nil {
		return Done
	}
	if code := Of(err); code != None {
		switch code {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping, gocql.ErrCodeUnprepared, RateLimit:
			return Refused
		case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
			return Invalid
		}
		return Unknown
	}
	switch {
	case errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrNoConnectionsInPool), errors.Is(err, gocql.ErrNoPool),
		errors.Is(err, gocql.ErrHostDown), errors.Is(err, gocql.ErrNoStreams), errors.Is(err, gocql.ErrSessionClosed):
		// The driver found no connection to write to, on this attempt; with
		// NeverAgain there was no earlier one.
		return Refused
	}
	return Unknown
}

// Lost reports whether err is the loss of the connection that a statement was sent on.
// It concerns one node: the next attempt is sent to another, or finds none.
func Lost(err error) bool {
	if Of(err) != None {
		return false
	}
	for _, lost := range []error{gocql.ErrConnectionClosed, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// NeverAgain lets gocql try another node only while nothing was sent. Its
// default policy repeats timed-out writes behind the caller's back.
type NeverAgain struct{}

// Attempt allows one try per node; the driver stops when it runs out of nodes.
func (NeverAgain) Attempt(gocql.RetryableQuery) bool { return true }

// GetRetryType goes on to the next node only after errors that come before
// anything is sent.
func (NeverAgain) GetRetryType(err error) gocql.RetryType {
	if Of(err) == None && FateOf(err) == Refused && !errors.Is(err, gocql.ErrSessionClosed) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// OtherNode lets gocql ask another node once, for statements that only read.
type OtherNode struct{}

// Attempt allows a second try.
func (OtherNode) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= 2 }

// GetRetryType goes on to the next node unless the statement itself is wrong.
func (OtherNode) GetRetryType(err error) gocql.RetryType {
	if FateOf(err) == Invalid {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}
