package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

// rights reads the permissions of a client's user from the Kafka cluster. It needs no
// permission to list ACLs, and performs no operation to test one.
type rights struct {
	client *kgo.Client
	// principal and seeds are parts of the commands that grant a permission.
	principal, seeds string
}

func newRights(c *app.Config, client *kgo.Client) *rights {
	return &rights{client: client, principal: "User:" + cmp.Or(c.Kafka.Username, "RELAY"), seeds: strings.Join(c.Kafka.Seeds, ",")}
}

// grant returns the commands that allow the operations on a resource: its kind, topic or
// group, and its name.
func (r *rights) grant(kind, name string, ops ...kmsg.ACLOperation) string {
	var long, short []string
	for _, op := range ops {
		word := strings.ToLower(strings.ReplaceAll(op.String(), "_", ""))
		long = append(long, "--operation "+word)
		short = append(short, word)
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal %s %s --%s %s; with Redpanda: rpk security acl create --allow-principal %s --operation %s --%s %s",
		r.seeds, r.principal, strings.Join(long, " "), kind, name, r.principal, strings.Join(short, ","), kind, name)
}

// lacking returns the wanted operations that a bit field does not contain. Brokers before
// Kafka 2.3 do not report operations; then nothing is lacking.
func lacking(allowed int32, want ...kmsg.ACLOperation) (out []kmsg.ACLOperation) {
	if allowed == math.MinInt32 {
		return nil
	}
	for _, op := range want {
		if allowed&(1<<op) == 0 {
			out = append(out, op)
		}
	}
	return out
}

func formatOperations(ops []kmsg.ACLOperation) string {
	names := make([]string, len(ops))
	for i, op := range ops {
		names[i] = op.String()
	}
	return strings.Join(names, " and ")
}

// need is the list of operations of the relay on a topic.
type need struct {
	ops []kmsg.ACLOperation
	// why is the consequence of a missing one.
	why map[kmsg.ACLOperation]string
}

var (
	publishing = need{
		[]kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationRead},
		map[kmsg.ACLOperation]string{
			kmsg.ACLOperationWrite: "nothing is published to it",
			kmsg.ACLOperationRead:  "a relay that was killed publishes some events a second time, because it cannot read back the topic",
		},
	}
	controlling = need{
		[]kmsg.ACLOperation{kmsg.ACLOperationRead},
		map[kmsg.ACLOperation]string{kmsg.ACLOperationRead: "no instance gets a shard of the relay"},
	}
)

// topic checks that the topic exists or can be created, and the permissions on it.
func (r *rights) topic(ctx context.Context, topic string, needs need, partitions int32, replication int16) Finding {
	check := "topic " + topic
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, one)
	resp, err := req.RequestWith(ctx, r.client)
	if err == nil && len(resp.Topics) != 1 {
		err = errors.New("the broker returned no description of it")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	switch {
	case err == nil:
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		all := append([]kmsg.ACLOperation{kmsg.ACLOperationDescribe}, needs.ops...)
		return Finding{check, false, "not allowed: DESCRIBE, and with it " + formatOperations(needs.ops) + ": " + err.Error(), r.grant("topic", topic, all...)}
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return r.canMake(ctx, topic, needs, partitions, replication, len(resp.Brokers))
	default:
		return Finding{check, false, err.Error(), "fix the reported error"}
	}
	t := resp.Topics[0]
	if no := lacking(t.AuthorizedOperations, needs.ops...); len(no) > 0 {
		var why []string
		for _, op := range no {
			why = append(why, needs.why[op])
		}
		return Finding{check, false, fmt.Sprintf("not allowed: %s; %s", formatOperations(no), strings.Join(why, "; ")), r.grant("topic", topic, no...)}
	}
	return Finding{check, true, fmt.Sprintf("%d partitions", len(t.Partitions)), ""}
}

// canMake checks that a missing topic can be created. A broker may accept more replicas than
// there are brokers while it only validates (Redpanda), so their number is compared.
func (r *rights) canMake(ctx context.Context, topic string, needs need, partitions int32, replication int16, brokers int) Finding {
	check := "topic " + topic
	if brokers > 0 && int(replication) > brokers {
		return Finding{
			check, false, fmt.Sprintf("does not exist, and cannot be created: %d replicas need as many brokers, and the cluster has %d", replication, brokers),
			fmt.Sprintf("start more brokers, or set relay.topic_replication to at most %d (Redpanda: an odd number)", brokers),
		}
	}
	made, err := kadm.NewClient(r.client).ValidateCreateTopics(ctx, partitions, replication, nil, topic)
	if err == nil {
		err = made[topic].Err
	}
	switch {
	case err == nil:
		return Finding{check, true, "does not exist yet; the relay creates it", ""}
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return Finding{
			check, false, "does not exist, and not allowed: CREATE: " + err.Error(),
			"create it, or: " + r.grant("topic", topic, append([]kmsg.ACLOperation{kmsg.ACLOperationCreate}, needs.ops...)...),
		}
	}
	if errors.Is(err, kerr.InvalidReplicationFactor) {
		return Finding{
			check, false, "does not exist, and cannot be created: " + err.Error(),
			fmt.Sprintf("set relay.topic_replication to a number that the cluster accepts: at most %d, its brokers, and with Redpanda an odd number", max(brokers, 1)),
		}
	}
	return Finding{
		check, false, "does not exist, and cannot be created: " + err.Error(),
		"create it, or set relay.topic_partitions and relay.topic_replication to values that the cluster accepts",
	}
}

// group checks the permissions on the consumer group of the instances.
func (r *rights) group(ctx context.Context, name string) Finding {
	check := "consumer group " + name
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.IncludeAuthorizedOperations = true
	req.Groups = []string{name}
	resp, err := req.RequestWith(ctx, r.client)
	if err == nil && len(resp.Groups) != 1 {
		err = errors.New("the broker returned no description of it")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	var no []kmsg.ACLOperation
	switch {
	case err == nil, errors.Is(err, kerr.GroupIDNotFound): // no member yet
		if resp != nil && len(resp.Groups) == 1 {
			no = lacking(resp.Groups[0].AuthorizedOperations, kmsg.ACLOperationRead)
		}
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		no = []kmsg.ACLOperation{kmsg.ACLOperationRead}
	default:
		return Finding{check, false, err.Error(), "fix the reported error; shards are assigned by the group's coordinator"}
	}
	if len(no) > 0 {
		return Finding{check, false, "not allowed: READ; no instance gets a shard of the relay", r.grant("group", name, no...)}
	}
	return Finding{check, true, "can be joined", ""}
}

// sharing checks the control topic and the consumer group of the instances.
func (r *rights) sharing(ctx context.Context, c *app.Config) []Finding {
	group := app.GroupName(c.Relay.Name)
	out := []Finding{r.topic(ctx, share.ControlTopic(group), controlling, int32(c.Relay.Shards), c.Relay.Replication), r.group(ctx, group)}
	return append(out, checkControl(ctx, c, r.client)...)
}
