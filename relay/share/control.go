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

// Control is what the instances of a name have in common at the broker: their group,
// and the control topic whose partitions are the shards. It is for whoever changes
// their number while none of them runs.
type Control struct {
	Client *kgo.Client
	// Name is Config.Name, Replication Config.Replication.
	Name        string
	Replication int16
	// Poll is the wait between two looks at a topic that is being deleted, 100 ms by
	// default, and Patience how long that may take, half a minute by default.
	Poll, Patience time.Duration
}

// State is what the broker says of the instances.
type State struct {
	// Partitions of the control topic; 0 without one.
	Partitions int
	// Members are the instances that are in the group, by the addresses of their hosts.
	// One that was killed is among them for as long as its session timeout.
	Members []string
}

// Topic is the name of the control topic.
func (c *Control) Topic() string {
	conf := Config{Name: c.Name}
	return conf.topic()
}

// State asks the broker.
func (c *Control) State(ctx context.Context) (s State, err error) {
	if s.Partitions, err = c.partitions(ctx); err != nil {
		return s, err
	}
	groups, err := kadm.NewClient(c.Client).DescribeGroups(ctx, c.Name)
	if err != nil {
		return s, fmt.Errorf("look up group %s: %w", c.Name, err)
	}
	g := groups[c.Name]
	if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
		return s, fmt.Errorf("look up group %s: %w", c.Name, g.Err)
	}
	for _, m := range g.Members {
		s.Members = append(s.Members, m.ClientHost)
	}
	return s, nil
}

// partitions asks the broker, and not what the client knew a few seconds ago.
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
		return 0, fmt.Errorf("look up topic %s: %w", c.Topic(), err)
	}
	return n, nil
}

// Divide gives the control topic so many partitions, whatever it has: none are added
// to one that has as many, fewer need a new topic. Nothing is ever in it, so nothing is
// lost with it, and what ends halfway is done by doing it again. done, which may be
// nil, is told of each step that was made.
//
// It does not look who is in the group.
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
		case !errors.Is(err, kerr.TopicAlreadyExists) && !errors.Is(err, kerr.UnknownTopicOrPartition): // else it is on its way
			return err
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("topic %s has %d partitions still, %s after it was to have %d", c.Topic(), n, patience, shards)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step makes one change that leads from n partitions to so many shards.
func (c *Control) step(ctx context.Context, n, shards int) (step string, err error) {
	topic, admin := c.Topic(), kadm.NewClient(c.Client)
	switch {
	case n == 0:
		_, err = admin.CreateTopic(ctx, int32(shards), replication(c.Replication), nil, topic)
		return "made", explainControl(err, "make topic "+topic, "CREATE")
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

// explainControl says which right is missing.
func explainControl(err error, what, right string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%s: %w: the Kafka user needs the right %s; or somebody who has it does it by hand, and this is done once more", what, err, right)
	case errors.Is(err, kerr.TopicDeletionDisabled):
		return fmt.Errorf("%s: %w: the broker has delete.topic.enable=false", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
