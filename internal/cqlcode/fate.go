package cqlcode

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/gocql/gocql"
)

// Fate is what a failed statement may have done.
type Fate uint8

// The fates of a statement.
const (
	// Done: the statement succeeded.
	Done Fate = iota
	// Unknown: the statement may have been applied, or may be applied later.
	Unknown
	// Refused: the statement was not executed and may succeed later.
	Refused
	// Invalid: the statement was not executed and can never succeed.
	Invalid
)

// Fates lists all fates.
var Fates = []Fate{Done, Unknown, Refused, Invalid}

// String returns the name of the fate in metrics.
func (f Fate) String() string {
	return [...]string{Done: "done", Unknown: "unknown", Refused: "refused", Invalid: "invalid"}[f]
}

// beforeStreams is in the server error for a write time before the first CDC generation of
// a table with tablets. Nothing of the statement or batch was executed. With vnodes
// the same write is an invalid request. A node that has no generation yet returns a server
// error with another text; that passes.
const beforeStreams = "could not find any CDC streams for table"

// ClassifyFate is the one place that classifies the driver's errors of a write. Errors that
// are not known to be harmless are unknown.
//
// A write timeout never means "not applied", whatever its write type: ScyllaDB may
// apply a batch that timed out with BATCH_LOG a minute later, and a conditional write
// that timed out with CAS may be decided but still invisible.
func ClassifyFate(err error) Fate {
	if err == nil {
		return Done
	}
	if code := Of(err); code != None {
		switch code {
		case gocql.ErrCodeUnavailable, gocql.ErrCodeOverloaded, gocql.ErrCodeBootstrapping, gocql.ErrCodeUnprepared:
			return Refused
		case RateLimit: // of a replica: others may have written
			if e, ok := errors.AsType[*gocql.RequestErrRateLimitReached](err); ok && e.RejectedByCoordinator {
				return Refused
			}
			return Unknown
		case gocql.ErrCodeServer:
			if strings.Contains(err.Error(), beforeStreams) {
				return Invalid
			}
			return Unknown
		case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
			return Invalid
		}
		return Unknown
	}
	switch {
	case errors.Is(err, gocql.ErrNoConnections), errors.Is(err, gocql.ErrNoConnectionsInPool), errors.Is(err, gocql.ErrNoPool),
		errors.Is(err, gocql.ErrHostDown), errors.Is(err, gocql.ErrNoStreams), errors.Is(err, gocql.ErrSessionClosed):
		// The driver found no connection for this attempt; with NeverAgain there was no
		// earlier attempt.
		return Refused
	}
	return Unknown
}

// Lost reports whether err is the loss of the connection on which a statement was sent.
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

// NeverAgain lets gocql try another node only while nothing was sent. Its default
// policy repeats timed-out writes without the caller's knowledge.
type NeverAgain struct{}

// Attempt allows one try per node; the driver stops when it runs out of nodes.
func (NeverAgain) Attempt(gocql.RetryableQuery) bool { return true }

// GetRetryType selects the next node only after errors that come before anything is
// sent.
func (NeverAgain) GetRetryType(err error) gocql.RetryType {
	if Of(err) == None && ClassifyFate(err) == Refused && !errors.Is(err, gocql.ErrSessionClosed) {
		return gocql.RetryNextHost
	}
	return gocql.Rethrow
}

// OtherNode lets gocql try one other node, for statements that only read.
type OtherNode struct{}

// Attempt allows a second try.
func (OtherNode) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= 2 }

// GetRetryType selects the next node unless the statement itself is wrong.
func (OtherNode) GetRetryType(err error) gocql.RetryType {
	if ClassifyFate(err) == Invalid {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}
