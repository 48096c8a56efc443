package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// cqlError is a database error with a code.
type cqlError int

func (e cqlError) GetCode() int { return int(e) }
func (cqlError) Error() string  { return "" }

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want Class
	}{
		{kerr.NotLeaderForPartition, Transient},
		{kerr.RequestTimedOut, Transient},
		{kerr.UnknownTopicOrPartition, Transient},
		{kerr.UnknownServerError, Transient},
		{kerr.OutOfOrderSequenceNumber, Transient},
		{kerr.ThrottlingQuotaExceeded, Transient},
		{kerr.MessageTooLarge, Permanent},
		{kerr.RecordListTooLarge, Permanent},
		{kerr.InvalidRecord, Permanent},
		{kerr.InvalidTopicException, Permanent},
		{kerr.TopicAuthorizationFailed, Permanent},
		{kerr.PolicyViolation, Transient}, // of a broker in recovery mode
		{&RefusedError{Err: kerr.PolicyViolation}, Permanent},
		{kerr.InvalidPartitions, Transient}, // of Redpanda without memory for more
		{kerr.InvalidConfig, Permanent},
		{kerr.InvalidReplicationFactor, Transient},
		{kerr.ClusterAuthorizationFailed, Fatal},
		{&RefusedError{Err: kerr.ClusterAuthorizationFailed}, Permanent},
		{kerr.SaslAuthenticationFailed, Fatal},
		{kerr.UnsupportedVersion, Fatal},
		{kgo.ErrClientClosed, Stopped},
		{kgo.ErrMaxBuffered, Transient},
		{kgo.ErrRecordTimeout, Transient},
		{cqlError(gocql.ErrCodeUnavailable), Transient},
		{cqlError(gocql.ErrCodeReadTimeout), Transient},
		{cqlError(gocql.ErrCodeWriteTimeout), Transient},
		{cqlError(gocql.ErrCodeOverloaded), Transient},
		{cqlError(gocql.ErrCodeServer), Transient},
		{cqlError(cqlcode.RateLimit), Transient},
		{cqlError(gocql.ErrCodeCredentials), Fatal},
		{cqlError(gocql.ErrCodeUnauthorized), Fatal},
		{cqlError(gocql.ErrCodeInvalid), Fatal},
		{cqlError(gocql.ErrCodeSyntax), Fatal},
		{gocql.ErrNoConnections, Transient},
		{gocql.ErrTimeoutNoResponse, Transient},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, Transient},
		{io.ErrUnexpectedEOF, Transient},
		{context.DeadlineExceeded, Transient},
		{context.Canceled, Stopped},
		{ErrStopping, Stopped},
		{&rows.RowError{Column: "seq"}, Permanent},
		{&TopicError{}, Permanent},
		{errors.New("unknown error"), Transient},
	} {
		if got := Classify(fmt.Errorf("wrapped: %w", tt.err)); got != tt.want {
			t.Errorf("Classify(%T %v) = %v, want %v", tt.err, tt.err, got, tt.want)
		}
	}
}
