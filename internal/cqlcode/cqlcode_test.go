package cqlcode

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gocql/gocql"
)

func TestOf(t *testing.T) {
	t.Parallel()
	timeout := &gocql.RequestErrWriteTimeout{WriteType: "BATCH"}
	timeout.Code = gocql.ErrCodeWriteTimeout
	invalid := gocql.UnknownServerError{}.ErrorFrame // as 2200 and 0000 arrive
	invalid.Code = gocql.ErrCodeInvalid
	for _, tt := range []struct {
		err  error
		want int
	}{
		{timeout, gocql.ErrCodeWriteTimeout},
		{invalid, gocql.ErrCodeInvalid},
		{fmt.Errorf("store: %w", invalid), gocql.ErrCodeInvalid},
		{errors.Join(gocql.ErrNoConnections, timeout), gocql.ErrCodeWriteTimeout},
		{gocql.ErrNoConnections, None},
		{gocql.ErrTimeoutNoResponse, None},
		{nil, None},
	} {
		if got := Of(tt.err); got != tt.want {
			t.Errorf("Of(%v) = %04x, want %04x", tt.err, got, tt.want)
		}
	}
}
