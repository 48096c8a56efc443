package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Control inspects and changes the shared state of the instances of a name at the broker:
// their group, and the control topic whose partitions are the shards. It changes the
// number of shards while no instance runs.
type Control struct {
	Client *kgo.Client
	// Name is Config.Name, Replication Config.Replication.
	Name        string
	Replication int16
	// Poll is the interval between checks of a topic that is being deleted, by default
	// 100 ms. Patience limits the wait, by default 30 s.
	Poll, Patience time.Duration
}

// State is the state of the control topic and the group.
type State struct {
	// Partitions is the number of partitions of the control topic, 0 without one.
	Partitions int
	// Members contains the host addresses of the instances in the group. A killed
	// instance remains in it until its session timeout.
	Members []string
}

// Topic returns the name of the control topic.
func (c *Control) Topic() string {
	conf := Config{Name: c.Name}
	return conf.topic()
}

// State returns the current state from the broker.
func (c *Control) State(ctx context.Context) (s State, err error) {
	if s.Partitions, err = c.partitions(ctx); err != nil {
		return s, err
	}
	groups, err := kadm.NewClient(c.Client).DescribeGroups(ctx, c.Name)
	if err != nil {
		return s, fmt.Errorf("describe group %s: %w", c.Name, err)
	}
	g := groups[c.Name]
	if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
		return s, fmt.Errorf("describe group %s: %w", c.Name, g.Err)
	}
	for _, m := range g.Members {
		s.Members = append(s.Members, m.ClientHost)
	}
	return s, nil
}

// partitions returns the number of partitions from the broker, not from the client's
// cache.
func (c *Control) partitions(ctx context.Context) (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(c.Topic())
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.Client)
	n := 0
	if err == nil && len(resp.Topics) > 0 {
		n, err = len(resp.Topics[0].Partitions), kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("describe topic %s: %w", c.Topic(), err)
	}
	return n, nil
}

// Divide gives the control topic the given number of partitions. It adds partitions, or
// deletes and recreates the topic for fewer; it does nothing if the number matches. The
// topic is always empty, so no data is lost, and an interrupted Divide can be repeated.
// done is called after each step with its name and may be nil.
//
// Divide does not check whether the group has members.
func (c *Control) Divide(ctx context.Context, shards int, done func(step string) error) error {
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("%d shards: not between 1 and %d", shards, MaxShards)
	}
	if done == nil {
		done = func(string) error { return nil }
	}
	poll, patience := c.Poll, c.Patience
	poll = cmp.Or(poll, 100*time.Millisecond)
	patience = cmp.Or(patience, 30*time.Second)
	for until := time.Now().Add(patience); ; {
		n, err := c.partitions(ctx)
		if err != nil || n == shards {
			return err
		}
		step, err := c.step(ctx, n, shards)
		switch {
		case err == nil:
			if err := done(step); err != nil {
				return err
			}
		case !errors.Is(err, kerr.TopicAlreadyExists) && !errors.Is(err, kerr.UnknownTopicOrPartition): // otherwise the change is in progress
			return err
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("topic %s still has %d partitions after %s, want %d", c.Topic(), n, patience, shards)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step makes one change on the way from n partitions to shards.
func (c *Control) step(ctx context.Context, n, shards int) (step string, err error) {
	topic, admin := c.Topic(), kadm.NewClient(c.Client)
	switch {
	case n == 0:
		_, err = admin.CreateTopic(ctx, int32(shards), replication(c.Replication), nil, topic)
		return "made", explainControl(err, "create topic "+topic, "CREATE")
	case n < shards:
		var resp kadm.CreatePartitionsResponses
		if resp, err = admin.UpdatePartitions(ctx, shards, topic); err == nil {
			err = resp[topic].Err
		}
		return "extended", explainControl(err, "add partitions to topic "+topic, "ALTER")
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return "deleted", explainControl(err, "delete topic "+topic, "DELETE")
}

func replication(n int16) int16 {
	n = cmp.Or(n, DefaultReplication)
	return n
}

// explainControl adds the missing right or setting to err.
func explainControl(err error, what, right string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%s: %w: the Kafka user needs the right %s; grant it, or make the change with another user and retry", what, err, right)
	case errors.Is(err, kerr.TopicDeletionDisabled):
		return fmt.Errorf("%s: %w: the broker has delete.topic.enable=false", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
