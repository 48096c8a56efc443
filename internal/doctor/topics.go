package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// keeps adds to the finding of a topic what its configuration does to acknowledged
// records: whether it is compacted, and whether the failure of one broker can lose
// them. A configuration that the user may not read is no failure, and neither is a
// setting that the broker does not have (Redpanda acknowledges by a majority).
func (r *rights) keeps(ctx context.Context, topic string, f Finding) Finding {
	admin := kadm.NewClient(r.client)
	details, err := admin.ListTopics(ctx, topic)
	if err != nil || details.Error() != nil || len(details[topic].Partitions) == 0 {
		return f // it does not exist yet
	}
	settings, err := topicSettings(ctx, admin, topic)
	if err != nil {
		f.Detail += "; its configuration cannot be read (DESCRIBE_CONFIGS), so min.insync.replicas and unclean.leader.election.enable are not checked: " + err.Error()
	}
	if strings.Contains(settings["cleanup.policy"], "compact") {
		f.Detail += "; it is compacted, so it keeps the last event of each aggregate alone: consumers that come later miss the others, and outbox verify counts them as missing"
	}
	replicas := details[topic].Partitions.NumReplicas()
	if details[topic].ID == (kadm.TopicID{}) {
		f.OK = false
		f.Detail += "; the broker gives topics no ids, so a topic that is deleted and created again is not recognized: subscriptions and streams stand still"
		f.Fix = "use Redpanda 25.3 or newer, with all brokers upgraded, or Kafka 2.8 or newer"
		return f
	}
	if settings["write.caching"] == "true" { // the default of the cluster where the topic has none
		f.OK = false
		f.Detail += "; acknowledged events can be lost: write.caching is true, so a record is acknowledged before a broker has it on its disk"
		f.Fix = fmt.Sprintf("rpk topic alter-config %s --set write.caching=false; for all topics: rpk cluster config set write_caching_default disabled", topic)
		return f
	}
	var losses, fix []string
	if n, err := strconv.Atoi(settings["min.insync.replicas"]); err == nil && replicas >= 3 && n < 2 {
		losses = append(losses, fmt.Sprintf("min.insync.replicas is %d, so a record that one broker alone has is acknowledged", n))
		fix = append(fix, "min.insync.replicas=2")
	}
	if settings["unclean.leader.election.enable"] == "true" && replicas >= 2 {
		losses = append(losses, "unclean.leader.election.enable is true, so a replica without acknowledged records can become the leader")
		fix = append(fix, "unclean.leader.election.enable=false")
	}
	switch {
	case len(losses) > 0:
		f.OK = false
		f.Detail += "; acknowledged events can be lost: " + strings.Join(losses, "; ")
		f.Fix = fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s", r.seeds, topic, strings.Join(fix, ","))
	case replicas < 3 && isRedpanda(settings):
		f.Detail += fmt.Sprintf("; %d replica(s): use 3, so that no single broker can lose or stop it", replicas)
	case replicas < 3:
		f.Detail += fmt.Sprintf("; %d replica(s): use 3 and min.insync.replicas=2, so that no single broker can lose or stop it", replicas)
	}
	return f
}

// isRedpanda reports whether a topic has the settings of Redpanda. It acknowledges by
// a majority of the replicas, and has no min.insync.replicas and no unclean elections.
func isRedpanda(settings map[string]string) bool {
	_, caching := settings["write.caching"]
	return caching
}

// topicSettings returns the configuration of a topic by name.
func topicSettings(ctx context.Context, admin *kadm.Client, topic string) (map[string]string, error) {
	all, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	resource, err := all.On(topic, nil)
	if err != nil {
		return nil, err
	}
	if resource.Err != nil {
		return nil, resource.Err
	}
	settings := make(map[string]string)
	for _, c := range resource.Configs {
		settings[c.Key] = c.MaybeValue()
	}
	return settings, nil
}
