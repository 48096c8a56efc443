package cqlcode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/gocql/gocql"
)

// coded is the error of a server with a code.
type coded int

func (c coded) Error() string { return fmt.Sprintf("code %04x", int(c)) }
func (c coded) GetCode() int  { return int(c) }

// texted is the error of a server with a code and a text.
type texted struct {
	coded
	text string
}

func (t texted) Error() string { return t.text }

// reset is the error of a read from a connection that the other side reset.
var reset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// rateLimited is the error of a rate limit, of the coordinator or a replica.
func rateLimited(coordinator bool) error {
	err := &gocql.RequestErrRateLimitReached{OpType: gocql.OpTypeWrite, RejectedByCoordinator: coordinator}
	err.ErrorFrame.Code = RateLimit
	return err
}

// failures are errors of a statement with everything that is decided from them.
var failures = []struct {
	name string
	err  error
	fate Fate
	// lost is the loss of a connection. again and other are the decisions of
	// NeverAgain and of OtherNode.
	lost         bool
	again, other gocql.RetryType
}{
	// The server did not execute these: another moment, or another node, may.
	{"unavailable", coded(gocql.ErrCodeUnavailable), Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	{"overloaded", coded(gocql.ErrCodeOverloaded), Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	{"bootstrapping", coded(gocql.ErrCodeBootstrapping), Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	{"unprepared", coded(gocql.ErrCodeUnprepared), Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	{"rate limit of the coordinator", rateLimited(true), Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	// No server will ever execute these.
	{"invalid", coded(gocql.ErrCodeInvalid), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"syntax", coded(gocql.ErrCodeSyntax), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"unauthorized", coded(gocql.ErrCodeUnauthorized), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"configuration", coded(gocql.ErrCodeConfig), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"protocol", coded(gocql.ErrCodeProtocol), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"credentials", coded(gocql.ErrCodeCredentials), Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"write time before the first streams, with vnodes", texted{gocql.ErrCodeInvalid, `cdc: attempted to get a stream "from the past" (WRITE; current server time: NOW).`}, Invalid, false, gocql.Rethrow, gocql.Rethrow},
	{"write time before the first streams, with tablets", texted{gocql.ErrCodeServer, "cdc::metadata::get_stream: could not find any CDC streams for table 5a0b for timestamp 1."}, Invalid, false, gocql.Rethrow, gocql.Rethrow},
	// These may have been executed, or may be later.
	{"rate limit of a replica", rateLimited(false), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"rate limit of somebody", coded(RateLimit), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"no streams at a node that joins", texted{gocql.ErrCodeServer, "cdc::metadata::get_stream: could not find any CDC stream (current time: NOW). Are we in the middle of a cluster upgrade?"}, Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"write timeout", coded(gocql.ErrCodeWriteTimeout), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"write failure", coded(gocql.ErrCodeWriteFailure), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"read timeout", coded(gocql.ErrCodeReadTimeout), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"server error", coded(gocql.ErrCodeServer), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"unknown code", coded(0x7777), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"timed out, with the loss of a connection", errors.Join(coded(gocql.ErrCodeWriteTimeout), io.EOF), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"no response", gocql.ErrTimeoutNoResponse, Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"cancelled", context.Canceled, Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	{"another error", errors.New("marshal"), Unknown, false, gocql.Rethrow, gocql.RetryNextHost},
	// The driver sent nothing.
	{"no connections", gocql.ErrNoConnections, Refused, false, gocql.RetryNextHost, gocql.RetryNextHost},
	{"no connections in a pool", gocql.ErrNoConnectionsInPool, Refused, false, gocql.RetryNextHost, gocql.RetryNextHost},
	{"no pool", fmt.Errorf("node: %w", gocql.ErrNoPool), Refused, false, gocql.RetryNextHost, gocql.RetryNextHost},
	{"host down", gocql.ErrHostDown, Refused, false, gocql.RetryNextHost, gocql.RetryNextHost},
	{"no streams", gocql.ErrNoStreams, Refused, false, gocql.RetryNextHost, gocql.RetryNextHost},
	{"closed session", gocql.ErrSessionClosed, Refused, false, gocql.Rethrow, gocql.RetryNextHost},
	// A connection was lost after the statement was sent.
	{"closed connection", gocql.ErrConnectionClosed, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"end of a connection", io.EOF, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"end within a frame", fmt.Errorf("frame: %w", io.ErrUnexpectedEOF), Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"closed pipe", io.ErrClosedPipe, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"closed here", net.ErrClosed, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"reset", reset, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
	{"broken pipe", syscall.EPIPE, Unknown, true, gocql.Rethrow, gocql.RetryNextHost},
}

// A statement is sent again only if it was certainly not executed. One that reads is sent
// to another node unless it is itself invalid.
func TestFateOf(t *testing.T) {
	t.Parallel()
	for _, tt := range failures {
		for _, err := range []error{tt.err, fmt.Errorf("store: %w", tt.err)} {
			if got := ClassifyFate(err); got != tt.fate {
				t.Errorf("%s: FateOf(%v) = %v, want %v", tt.name, err, got, tt.fate)
			}
			if got := Lost(err); got != tt.lost {
				t.Errorf("%s: Lost(%v) = %v, want %v", tt.name, err, got, tt.lost)
			}
			if got := (NeverAgain{}).GetRetryType(err); got != tt.again {
				t.Errorf("%s: a write is decided as %v, want %v", tt.name, got, tt.again)
			}
			if got := (OtherNode{}).GetRetryType(err); got != tt.other {
				t.Errorf("%s: a read is decided as %v, want %v", tt.name, got, tt.other)
			}
		}
	}
	if got := ClassifyFate(nil); got != Done {
		t.Errorf("FateOf(nil) = %v, want %v", got, Done)
	}
	if Lost(nil) {
		t.Error("Lost(nil) = true")
	}
}

// Every fate has a name of its own, which metrics contain.
func TestFate_String(t *testing.T) {
	t.Parallel()
	want := map[Fate]string{Done: "done", Unknown: "unknown", Refused: "refused", Invalid: "invalid"}
	if len(Fates) != len(want) {
		t.Errorf("%d fates, want %d", len(Fates), len(want))
	}
	for _, f := range Fates {
		if f.String() != want[f] {
			t.Errorf("fate %d is %q, want %q", f, f, want[f])
		}
	}
}

// attempts is a query that was sent so often.
type attempts struct {
	gocql.RetryableQuery
	n int
}

func (a attempts) Attempts() int { return a.n }

// A read is sent at most to one other node; a write ends where the driver's nodes end.
func TestPolicies_Attempts(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{1: true, 2: true, 3: false, 10: false} {
		if got := (OtherNode{}).Attempt(attempts{n: n}); got != want {
			t.Errorf("after %d attempts a read is repeated: %v, want %v", n, got, want)
		}
		if !(NeverAgain{}).Attempt(attempts{n: n}) {
			t.Errorf("after %d attempts a write that was not sent ends", n)
		}
	}
}
