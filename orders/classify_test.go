package orders

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// serverError is a server's error of any code, of the driver's own type.
func serverError(code int) error {
	e := gocql.UnknownServerError{}.ErrorFrame
	e.Code = code
	return e
}

func TestFateOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		want fate
	}{
		{nil, fateDone},
		{serverError(0x0000), fateUnknown}, // a server error can come after the write
		{serverError(0x1000), fateRefused},
		{serverError(0x1001), fateRefused},
		{serverError(0x1002), fateRefused},
		{serverError(0x1100), fateUnknown},
		{serverError(0x1200), fateUnknown}, // how a write with preimage times out
		{serverError(0x1300), fateUnknown},
		{serverError(0x1500), fateUnknown},
		{serverError(0x1700), fateUnknown},
		{serverError(0x2000), fateInvalid},
		{serverError(0x2100), fateInvalid},
		{serverError(0x2200), fateInvalid},
		{serverError(0xF000), fateUnknown}, // of a replica: others may have written
		{gocql.ErrNoConnections, fateRefused},
		{gocql.ErrHostDown, fateRefused},
		{gocql.ErrSessionClosed, fateRefused},
		{gocql.ErrTimeoutNoResponse, fateUnknown},
		{gocql.ErrConnectionClosed, fateUnknown},
		{context.DeadlineExceeded, fateUnknown},
		{context.Canceled, fateUnknown},
		{&outbox.InvalidEventError{}, fateInvalid},
		{errors.New("anything else"), fateUnknown},
	}
	for _, tt := range tests {
		err := tt.err
		if err != nil {
			err = fmt.Errorf("store order: %w", err)
		}
		if got := classifyFate(err); got != tt.want {
			t.Errorf("fateOf(%v) = %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestNeverAgain_OnlyBeforeAnythingWasSent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want gocql.RetryType
	}{
		{gocql.ErrHostDown, gocql.RetryNextHost},
		{gocql.ErrNoConnectionsInPool, gocql.RetryNextHost},
		{gocql.ErrSessionClosed, gocql.Rethrow},
		{gocql.ErrTimeoutNoResponse, gocql.Rethrow},
		{serverError(0x1000), gocql.Rethrow},
		{serverError(0x1100), gocql.Rethrow},
	} {
		if got := (neverAgain{}).GetRetryType(tt.err); got != tt.want {
			t.Errorf("GetRetryType(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	if err := (Config{}).withDefaults().validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for name, c := range map[string]Config{
		"weak":             {Consistency: gocql.One},
		"not serial":       {SerialConsistency: gocql.Quorum},
		"no attempt":       {AttemptTimeout: -1},
		"short budget":     {WriteBudget: 1},
		"early repair":     {RepairAfter: 1},
		"negative row TTL": {RowTTL: -1},
		"no wait":          {RetryAfter: -1},
	} {
		if err := c.withDefaults().validate(); err == nil {
			t.Errorf("%s: validate() = nil, want an error", name)
		}
	}
}
