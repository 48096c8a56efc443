package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Class says what an error means for the event or the process that met it.
type Class uint8

// The classes.
const (
	// Transient may succeed later; the relay backs off and tries again.
	Transient Class = iota
	// Permanent means that this event, or any event of its topic, cannot be sent as
	// things stand. The event becomes a dead letter; without dead letters its
	// aggregate is held and the relay retries at long intervals.
	Permanent
	// Fatal means that the process is wrongly set up: the cluster refuses the
	// connection itself. The relay stops, and no checkpoint moves.
	Fatal
	// Stopped means that the work was called off; the event stays where it is.
	Stopped
)

// String is the class as metric labels and logs spell it.
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

// ErrStopping is what a stopping relay answers to work it no longer takes.
var ErrStopping = errors.New("the relay is stopping")

// errReaderEnded is why the reader is started again when it gave no reason.
var errReaderEnded = errors.New("the CDC reader ended")

// TopicError says that an event's topic has no valid name. It is Permanent.
type TopicError struct {
	EventType, AggregateType string
	Topic                    string
}

// Error names the topic and where it came from.
func (e *TopicError) Error() string {
	return fmt.Sprintf("%q is no topic name (event type %q, aggregate type %q): map the event type to a topic", e.Topic, e.EventType, e.AggregateType)
}

// refusedTopicError is an error that the broker returned for one topic, also where
// Kafka reports it with a code of the whole cluster. It is Permanent.
type refusedTopicError struct{ err error }

// Error is the broker's error.
func (e *refusedTopicError) Error() string { return e.err.Error() }

// Unwrap is for errors.As.
func (e *refusedTopicError) Unwrap() error { return e.err }

// refusesTopic reports whether the broker refuses the topic as a whole, whatever the
// record, so that sending an event once more on its own cannot help.
func refusesTopic(err error) bool {
	if _, ok := errors.AsType[*refusedTopicError](err); ok {
		return true
	}
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.InvalidTopicException)
}

// Classify decides what err means. It knows the broker's and the database's
// typed errors; what it does not know is Transient. The end of a deadline is
// Transient, a cancelled context is Stopped. Classify(nil) is not defined.
func Classify(err error) Class {
	switch {
	case errors.Is(err, ErrStopping), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return Stopped
	case errors.Is(err, context.DeadlineExceeded):
		return Transient
	}
	if _, ok := errors.AsType[*outbox.RowError](err); ok {
		return Permanent
	}
	if _, ok := errors.AsType[*outbox.MappingError](err); ok {
		return Fatal
	}
	if _, ok := errors.AsType[*TopicError](err); ok {
		return Permanent
	}
	if _, ok := errors.AsType[*refusedTopicError](err); ok {
		return Permanent
	}
	if _, ok := errors.AsType[*OpenLettersError](err); ok {
		return Fatal
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return classifyKafka(ke)
	}
	return classifyCQL(cqlcode.Of(err))
}

// classifyKafka separates errors of one topic from errors of the connection to the
// cluster. INVALID_REPLICATION_FACTOR is Transient: fewer brokers than replicas are
// alive, which a restart of a broker ends.
func classifyKafka(err *kerr.Error) Class {
	switch err {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.UnsupportedForMessageFormat,
		kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.PolicyViolation, kerr.InvalidPartitions, kerr.InvalidConfig:
		return Permanent
	case kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.UnsupportedVersion, kerr.InvalidRequiredAcks:
		return Fatal
	default:
		return Transient
	}
}

// classifyCQL sorts by the protocol's code: what the server says about itself
// passes, what it says about the request does not.
func classifyCQL(code int) Class {
	switch code {
	case gocql.ErrCodeCredentials, gocql.ErrCodeUnauthorized,
		gocql.ErrCodeSyntax, gocql.ErrCodeInvalid, gocql.ErrCodeConfig:
		return Fatal
	default:
		return Transient
	}
}
