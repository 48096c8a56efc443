package share

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Why a function's context ended; context.Cause tells.
var (
	// ErrRevoked means that the group gives the shard to another instance, as soon as
	// the function has returned: there is time to finish what is under way.
	ErrRevoked = errors.New("the shard goes to another instance")
	// ErrStopping means that the member stops. There is time, too.
	ErrStopping = errors.New("the instance stops")
	// ErrLost means that another instance may own the shard by now. Nothing more may
	// be written, and what is under way is to be given up. Hold.Check returns it.
	ErrLost = errors.New("the shard is lost: another instance may own it")
)

// CountError says that the control topic has another number of partitions than
// there are shards.
type CountError struct {
	// Topic is the control topic, Partitions what it has, Shards what is configured.
	Topic              string
	Partitions, Shards int
}

// Error names both numbers and what to do.
func (e *CountError) Error() string {
	return fmt.Sprintf("%d shards are configured and topic %s has %d partitions: configure %d, or divide it anew while no instance runs",
		e.Shards, e.Topic, e.Partitions, e.Partitions)
}

// explain says what to do about an error of the group that waiting does not mend;
// it returns nil for others.
func (c *Config) explain(err error) error {
	switch {
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return fmt.Errorf("join group %s: %w: instances of it run with another number of shards than %d, or something else uses the group: stop them first", c.Name, err, c.Shards)
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return fmt.Errorf("join group %s: %w: the broker does not allow a session timeout of %s: its group.min.session.timeout.ms is 6 s unless it was changed", c.Name, err, c.SessionTimeout)
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("join group %s: %w: the Kafka user needs the right READ on that group and on topic %s", c.Name, err, c.topic())
	case errors.Is(err, kerr.InvalidGroupID), errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.SaslAuthenticationFailed),
		errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState), errors.Is(err, kerr.GroupMaxSizeReached):
		return fmt.Errorf("join group %s: %w", c.Name, err)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("make topic %s: %w: the Kafka user needs the right CREATE, or somebody makes the topic with %d partitions", c.topic(), err, c.Shards)
	case errors.Is(err, kerr.InvalidReplicationFactor), errors.Is(err, kerr.PolicyViolation), errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("make topic %s: %w", c.topic(), err)
	}
	return nil
}
