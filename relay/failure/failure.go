// Package failure classifies the errors that the relay meets, from the broker, the
// database and its own parts, into four classes:
//
//   - Transient: retry with backoff
//   - Permanent: dead-letter the event
//   - Fatal: stop the relay
//   - Stopped: the relay is stopping
//
// It relies on the codes of Kafka's and ScyllaDB's protocols having their documented meanings. A code
// that it does not know is transient: what never succeeds is then retried, and becomes a dead letter
// after the last attempt.
//
// It does not retry, log or count anything.
//
// It is a part of the program, and may change in any version.
package failure

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Class determines how the relay handles an error.
type Class uint8

// The classes.
const (
	// Transient may succeed later; the relay retries with backoff.
	Transient Class = iota
	// Permanent means that the broker does not accept this event, or any event of its
	// topic. The event becomes a dead letter; without dead letters its
	// aggregate is held and the relay retries at long intervals.
	Permanent
	// Fatal means that the configuration is wrong: the cluster refuses the
	// connection itself. The relay stops, and no checkpoint moves.
	Fatal
	// Stopped means that the work was cancelled; the event stays queued.
	Stopped
)

// String returns the value of the metric label class.
func (c Class) String() string {
	switch c {
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case Fatal:
		return "fatal"
	case Stopped:
		return "stopped"
	default:
		return fmt.Sprintf("class(%d)", uint8(c))
	}
}

// ErrStopping is returned for work that a stopping relay does not accept.
var ErrStopping = errors.New("the relay is stopping")

// TopicError reports an event whose topic has no valid name. It is Permanent.
type TopicError struct {
	EventType, AggregateType string
	Topic                    string
	OfRow                    bool // the row of the event contains it: no type has a topic of its own
}

// Error contains the topic, and the types that it was derived from.
func (e *TopicError) Error() string {
	if e.OfRow {
		return fmt.Sprintf("%q is not a valid topic name: the row of the event names it; correct what writes the topic's column, and redirect the dead letter to another topic", e.Topic)
	}
	return fmt.Sprintf("%q is not a valid topic name (event type %q, aggregate type %q): map the event type to a topic", e.Topic, e.EventType, e.AggregateType)
}

// RefusedError is an error that the broker returned for one topic, also where
// Kafka reports it with a code of the whole cluster. It is Permanent.
type RefusedError struct{ Err error }

// Error returns the broker's error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the broker's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// IsTopicRefused reports whether the broker refuses the topic as a whole, for any record,
// so that a retry of a single event cannot succeed.
func IsTopicRefused(err error) bool {
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return true
	}
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException)
}

// IsUnreachable reports whether err means that no broker answered: it is no answer of one.
func IsUnreachable(err error) bool {
	_, answer := errors.AsType[*kerr.Error](err)
	return err != nil && !answer
}

// Classify returns the class of err: the result of its method Class if an error of the
// chain has one, otherwise the class of the typed error of the broker or the database.
// Any other error is Transient. The end of a deadline is Transient, a cancelled context
// is Stopped. Classify(nil) is not defined.
func Classify(err error) Class {
	switch {
	case errors.Is(err, ErrStopping), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return Stopped
	case errors.Is(err, context.DeadlineExceeded):
		return Transient
	}
	if _, ok := errors.AsType[*rows.RowError](err); ok {
		return Permanent
	}
	if _, ok := errors.AsType[*outbox.MappingError](err); ok {
		return Fatal
	}
	if _, ok := errors.AsType[*TopicError](err); ok {
		return Permanent
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return Permanent
	}
	if classed, ok := errors.AsType[interface {
		error
		Class() Class
	}](err); ok {
		return classed.Class()
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return classifyKafka(ke)
	}
	return classifyCQL(cqlcode.Of(err))
}

// classifyKafka separates errors of one topic from errors of the connection to the
// cluster. INVALID_REPLICATION_FACTOR is Transient: fewer brokers than replicas are
// alive, until a broker restarts. So is INVALID_PARTITIONS: a relay asks for a positive number, and
// Redpanda refuses it with this code while its memory and cores suffice for fewer. So is
// POLICY_VIOLATION, which a Redpanda broker in recovery
// mode returns to any request; a policy that refuses the creation of a topic is a
// RefusedError.
func classifyKafka(err *kerr.Error) Class {
	switch err {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.UnsupportedForMessageFormat,
		kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.InvalidConfig:
		return Permanent
	case kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.UnsupportedVersion, kerr.InvalidRequiredAcks:
		return Fatal
	default:
		return Transient
	}
}

// classifyCQL classifies by the protocol's error code: errors of the server's state are
// Transient, errors of the request are Fatal.
func classifyCQL(code int) Class {
	switch code {
	case gocql.ErrCodeCredentials, gocql.ErrCodeUnauthorized,
		gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeConfig:
		return Fatal
	default:
		return Transient
	}
}
