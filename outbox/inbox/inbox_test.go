package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// after is decided by the order, the event and the mark alone.
func TestStep_After(t *testing.T) {
	t.Parallel()
	none := int64(-1)
	for _, c := range []struct {
		order          Order
		sequence, have int64
		want           condition
	}{
		{FromOne, 1, none, condition{kind: absent}},
		{FromOne, 2, none, condition{gap, 1}},
		{FromOne, 1, 0, condition{equal, 0}}, // a mark that somebody set to 0
		{FromOne, 3, 2, condition{equal, 2}},
		{FromOne, 3, 1, condition{gap, 2}},
		{FromOne, 3, 3, condition{kind: finished}},
		{FromOne, 3, 9, condition{kind: finished}},
		{FromAny, 7, none, condition{kind: absent}},
		{FromAny, 7, 6, condition{equal, 6}},
		{FromAny, 7, 5, condition{gap, 6}},
		{Increasing, 7, none, condition{kind: absent}},
		{Increasing, 7, 5, condition{less, 7}},
		{Increasing, 7, 7, condition{kind: finished}},
	} {
		have := &c.have
		if c.have == none {
			have = nil
		}
		if got := (step{sequence: c.sequence, order: c.order}).after(have); got != c.want {
			t.Errorf("order %d, event %d after %d: %v, want %v", c.order, c.sequence, c.have, got, c.want)
		}
	}
}

// An id that is not a UUID is refused before a statement is sent.
func TestFence_CheckKey(t *testing.T) {
	t.Parallel()
	const id = "01930000-0000-7000-8000-000000000001"
	uuid, _ := gocql.ParseUUID(id)
	f := &Fence{keys: []string{"region", "id"}, table: &table{columns: map[string]column{"region": {typ: "text"}, "id": {typ: "uuid"}}}}
	for _, c := range []struct {
		key Key
		ok  bool
	}{{Key{"eu", id}, true}, {Key{"eu", uuid}, true}, {Key{"eu", "order 7"}, false}, {Key{"eu", ""}, false}, {Key{id}, false}, {nil, false}} {
		if err := f.checkKey(c.key); (err == nil) != c.ok {
			t.Errorf("checkKey(%v) = %v", c.key, err)
		}
	}
}

type (
	upstream int // an error of github.com/gocql/gocql
	fork     int // an error of github.com/scylladb/gocql
)

func (e upstream) Error() string { return "upstream" }
func (e upstream) Code() int     { return int(e) }
func (e fork) Error() string     { return "fork" }
func (e fork) GetCode() int      { return int(e) }

// Only an error that excludes that a statement was or will be applied is invalid.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, c := range []int{gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials} {
		if !invalid(fmt.Errorf("x: %w", upstream(c))) || !invalid(fork(c)) {
			t.Errorf("code %04x is retried", c)
		}
	}
	for _, c := range []int{gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteFailure, gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeOverloaded, 0xF000} {
		if invalid(upstream(c)) || invalid(fork(c)) {
			t.Errorf("code %04x is not retried", c)
		}
	}
	for err, want := range map[error]bool{
		nil: false, io.EOF: false, gocql.ErrTimeoutNoResponse: false, gocql.ErrNoConnections: false, context.DeadlineExceeded: false,
		gocql.ErrSessionClosed: true, gocql.MarshalError("can not marshal"): true,
	} {
		if invalid(err) != want {
			t.Errorf("invalid(%v) = %t, want %t", err, !want, want)
		}
	}
}

// Pauses grow to a second with jitter, and end with the context.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempts := 1; attempts <= 10*maxAttempts; attempts++ {
			began, most := time.Now(), min(firstPause<<min(attempts-1, 10), maxPause)
			if err := pause(t.Context(), attempts); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d < most/2 || d > most {
				t.Errorf("pause after %d attempts: %s, want %s to %s", attempts, d, most/2, most)
			}
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)
		began := time.Now()
		if err := pause(ctx, maxAttempts); !errors.Is(err, stopped) || time.Since(began) > 0 {
			t.Errorf("with an ended context: %v after %s", err, time.Since(began))
		}
	})
}

func TestOutcome_String(t *testing.T) {
	t.Parallel()
	for o, want := range map[Outcome]string{Unknown: "unknown", Applied: "applied", Duplicate: "duplicate"} {
		if o.String() != want {
			t.Errorf("%d = %s, want %s", o, o, want)
		}
	}
}
