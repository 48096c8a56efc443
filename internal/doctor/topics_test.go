package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The doctor fails a topic whose settings let the failure of one broker lose
// acknowledged events, and names the command that changes them.
func TestDoctor_ChecksThatTopicsKeepWhatTheyAcknowledge(t *testing.T) {
	t.Parallel()
	const single = "; 1 replica(s): use 3"
	for name, x := range map[string]struct {
		replicas int16
		minimum  string // empty for Redpanda, which has no such setting
		unclean  string // empty for a broker without this setting; of Redpanda write.caching
		denied   bool
		detail   string
		fix      string
	}{
		"safe":                     {3, "2", "false", false, "", ""},
		"one replica is enough":    {3, "1", "false", false, "min.insync.replicas is 1", "--add-config min.insync.replicas=2"},
		"unclean leaders":          {3, "2", "true", false, "unclean.leader.election.enable is true", "--add-config unclean.leader.election.enable=false"},
		"both":                     {3, "1", "true", false, "min.insync.replicas is 1", "--add-config min.insync.replicas=2,unclean.leader.election.enable=false"},
		"a broker without setting": {3, "2", "", false, "", ""},
		"write caching":            {3, "", "true", false, "write.caching is true", "rpk cluster config set write_caching_default disabled"},
		"one broker":               {1, "1", "true", false, single + " and min.insync.replicas=2", ""},
		"one broker of Redpanda":   {1, "", "false", false, single + ", so that no single broker", ""},
		"safe at Redpanda":         {3, "", "false", false, "", ""},
		"not allowed to read them": {3, "1", "true", true, "are not checked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := []kfake.Opt{kfake.NumBrokers(3)}
			if x.minimum == "" {
				opts = append(opts, world.Redpanda().Options()...)
			}
			broker := world.StartBroker(t, opts...)
			c, err := parseConfig(t, "relay: {tables: [{keyspace: shop, table: bills, topic: bills}]}", nil, "--kafka-seeds", broker.ListenAddrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			client, err := c.Kafka.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, x.replicas, nil, "bills"); err != nil {
				t.Fatal(err)
			}
			broker.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				broker.KeepControl()
				return describedTopic(req.(*kmsg.DescribeConfigsRequest), x.minimum, x.unclean, x.denied), nil, true
			})
			found := checkKafka(t.Context(), c)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "topic bills" })
			if i < 0 {
				t.Fatalf("no finding on the topic: %+v", found)
			}
			f := found[i]
			if f.OK != (x.fix == "") || !strings.Contains(f.Detail, x.detail) || !strings.HasSuffix(f.Fix, x.fix) || x.detail == "" && f.Detail != "2 partitions" {
				t.Errorf("%+v, want %q and %q", f, x.detail, x.fix)
			}
			if x.minimum == "" && (strings.Contains(f.Detail+f.Fix, "min.insync") || strings.Contains(f.Fix, "kafka-")) {
				t.Errorf("%+v names what Redpanda does not have", f)
			}
		})
	}
}

// describedTopic is the answer of a broker with these settings; kfake has no unclean elections.
func describedTopic(req *kmsg.DescribeConfigsRequest, minimum, unclean string, denied bool) *kmsg.DescribeConfigsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	resource := kmsg.NewDescribeConfigsResponseResource()
	resource.ResourceType, resource.ResourceName = req.Resources[0].ResourceType, req.Resources[0].ResourceName
	add := func(name, value string) {
		one := kmsg.NewDescribeConfigsResponseResourceConfig()
		one.Name, one.Value = name, &value
		resource.Configs = append(resource.Configs, one)
	}
	switch {
	case denied:
		resource.ErrorCode = kerr.TopicAuthorizationFailed.Code
	case minimum == "":
		add("write.caching", unclean)
	case unclean != "":
		add("unclean.leader.election.enable", unclean)
		fallthrough
	default:
		add("min.insync.replicas", minimum)
	}
	resp.Resources = append(resp.Resources, resource)
	return resp
}

// A topic that more replicas need than the cluster has brokers cannot be created, also if the
// broker accepts it while it only validates, and Redpanda accepts odd numbers alone.
func TestDoctor_ComparesReplicasWithBrokers(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		replicas string
		err      *kerr.Error
		fix      string
	}{
		"more than brokers": {"5", nil, "at most 3"},
		"an even number":    {"2", kerr.InvalidReplicationFactor, "with Redpanda an odd number"},
		"as many":           {"3", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := world.StartBroker(t, append(world.Redpanda().Options(), kfake.NumBrokers(3))...)
			broker.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
				broker.KeepControl()
				r := req.(*kmsg.CreateTopicsRequest)
				resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
				one := kmsg.NewCreateTopicsResponseTopic()
				if one.Topic = r.Topics[0].Topic; x.err != nil {
					one.ErrorCode = x.err.Code
				}
				resp.Topics = append(resp.Topics, one)
				return resp, nil, true
			})
			c, err := parseConfig(t, "relay: {topic_replication: "+x.replicas+", tables: [{keyspace: shop, table: bills, topic: bills}]}", nil, "--kafka-seeds", broker.ListenAddrs()[0])
			if err != nil {
				t.Fatal(err)
			}
			found := checkKafka(t.Context(), c)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "topic bills" })
			if i < 0 || found[i].OK != (x.fix == "") || !strings.Contains(found[i].Fix, x.fix) {
				t.Errorf("%+v, want the fix %q", found, x.fix)
			}
		})
	}
}

// A broker without topic ids is not supported.
func TestDoctor_NeedsTopicIDs(t *testing.T) {
	t.Parallel()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.Metadata.Int16(), 8)
	broker := world.StartBroker(t, kfake.NumBrokers(3), kfake.MaxVersions(versions), kfake.SeedTopics(2, "bills"))
	c, err := parseConfig(t, "relay: {tables: [{keyspace: shop, table: bills, topic: bills}]}", nil, "--kafka-seeds", broker.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	found := checkKafka(t.Context(), c)
	i := slices.IndexFunc(found, func(f Finding) bool { return f.Check == "topic bills" })
	if i < 0 || found[i].OK || !strings.Contains(found[i].Fix, "Redpanda 25.3") {
		t.Errorf("%+v, want a finding that names the supported versions", found)
	}
}
