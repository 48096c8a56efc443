package attempt

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
		if !Invalid(fmt.Errorf("x: %w", upstream(c))) || !Invalid(fork(c)) {
			t.Errorf("code %04x is retried", c)
		}
	}
	for _, c := range []int{gocql.ErrCodeServer, gocql.ErrCodeUnavailable, gocql.ErrCodeWriteTimeout, gocql.ErrCodeReadTimeout, gocql.ErrCodeWriteFailure, gocql.ErrCodeCASWriteUnknown, gocql.ErrCodeOverloaded, 0xF000} {
		if Invalid(upstream(c)) || Invalid(fork(c)) {
			t.Errorf("code %04x is not retried", c)
		}
	}
	for err, want := range map[error]bool{
		nil: false, io.EOF: false, gocql.ErrTimeoutNoResponse: false, gocql.ErrNoConnections: false, context.DeadlineExceeded: false,
		gocql.ErrSessionClosed: true, gocql.MarshalError("can not marshal"): true,
	} {
		if Invalid(err) != want {
			t.Errorf("Invalid(%v) = %t, want %t", err, !want, want)
		}
	}
}

// Pauses grow to a second with jitter, and end with the context.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempts := 1; attempts <= 10*Max; attempts++ {
			began, most := time.Now(), min(FirstPause<<min(attempts-1, 10), MaxPause)
			if err := Pause(t.Context(), attempts); err != nil {
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
		if err := Pause(ctx, Max); !errors.Is(err, stopped) || time.Since(began) > 0 {
			t.Errorf("with an ended context: %v after %s", err, time.Since(began))
		}
	})
}
