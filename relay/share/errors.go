package share

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Causes of the end of a function's context, returned by context.Cause.
var (
	// ErrRevoked means that the group assigns the shard to another instance once the
	// function has returned. The function has time to drain.
	ErrRevoked = errors.New("the shard is reassigned to another instance")
	// ErrStopping means that the member stops. The function has time to drain.
	ErrStopping = errors.New("the instance is stopping")
	// ErrLost means that another instance may already own the shard. The function must
	// not write any more and abandons work in progress. Hold.Check returns it.
	ErrLost = errors.New("the shard is lost: another instance may own it")
)

// CountError reports that the number of partitions of the control topic differs from the
// configured number of shards.
type CountError struct {
	// Topic is the control topic, Partitions its number of partitions, Shards the
	// configured number.
	Topic              string
	Partitions, Shards int
}

// Error contains both numbers and the fix.
func (e *CountError) Error() string {
	return fmt.Sprintf("%d shards are configured but topic %s has %d partitions: configure %d, or change the number of shards while no instance runs",
		e.Shards, e.Topic, e.Partitions, e.Partitions)
}

// createError is a failed creation of the control topic.
type createError struct {
	topic string
	err   error
}

func (e *createError) Error() string { return fmt.Sprintf("create topic %s: %v", e.topic, e.err) }

func (e *createError) Unwrap() error { return e.err }

// explain adds the fix to an error of the group that retries cannot resolve; it returns
// nil for other errors.
func (c *Config) explain(err error) error {
	create, ok := errors.AsType[*createError](err)
	switch {
	case ok && (errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)):
		return fmt.Errorf("%w: grant the Kafka user CREATE on it, or create it with --partitions %d", create, c.Shards)
	case ok && errors.Is(err, kerr.InvalidReplicationFactor):
		return fmt.Errorf("%w: the cluster has too few brokers for a replication factor of %d, or is a Redpanda, which accepts odd ones alone", create, c.Replication)
	case ok && (errors.Is(err, kerr.PolicyViolation) || errors.Is(err, kerr.InvalidTopicException)):
		return create
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("join group %s: %w: its instances run with another number of shards than %d or on another database, or another application uses the group: stop them, or use another name", c.Name, err, c.Shards)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("join group %s: %w: the broker does not allow a session timeout of %s: the default of its group.min.session.timeout.ms is 6 s", c.Name, err, c.SessionTimeout)
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("join group %s: %w: the Kafka user needs the right READ on that group and on topic %s", c.Name, err, c.topic())
	case errors.Is(err, kerr.InvalidGroupID), errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.SaslAuthenticationFailed),
		errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState), errors.Is(err, kerr.GroupMaxSizeReached):
		return fmt.Errorf("join group %s: %w", c.Name, err)
	}
	return nil
}
