package app

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The clients of a process share their metrics: several are open at the same time, and what
// a closed one counted is kept. No label is a topic or a partition.
func TestObserve_CountsSeveralKafkaClients(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "things", "others"))
	c, err := parseConfig(t, "", nil, "--kafka-seeds", strings.Join(broker.ListenAddrs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	c.Observe(reg, slog.New(slog.DiscardHandler))
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := c.Kafka.Client(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	first, second := client(), client()
	for _, cl := range []*kgo.Client{first, second} {
		for _, topic := range []string{"things", "others"} {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	first.Close()
	consumer := client(kgo.ConsumeTopics("things", "others"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for n := 0; n < 4; {
		fetches := consumer.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}

	want := `# HELP outbox_kafka_fetch_records_total Total number of records fetched
# TYPE outbox_kafka_fetch_records_total counter
outbox_kafka_fetch_records_total 4
# HELP outbox_kafka_produce_records_total Total number of records produced
# TYPE outbox_kafka_produce_records_total counter
outbox_kafka_produce_records_total 4
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "outbox_kafka_fetch_records_total", "outbox_kafka_produce_records_total"); err != nil {
		t.Error(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), kafkaNamespace) {
			continue
		}
		seen[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "node_id" {
					t.Errorf("%s has the label %s", f.GetName(), l.GetName())
				}
			}
		}
	}
	for _, name := range []string{"outbox_kafka_connects_total", "outbox_kafka_request_duration_e2e_seconds", "outbox_kafka_produce_compressed_bytes_total"} {
		if !seen[name] {
			t.Errorf("no metric %s", name)
		}
	}
	if seen["outbox_kafka_buffered_produce_records_total"] {
		t.Error("a gauge of one client is registered")
	}
}

// collected keeps the collectors that are registered.
type collected struct {
	prometheus.Registerer
	names map[string]bool
}

var metricOf = regexp.MustCompile(`fqName: "([^"]+)"`)

// MustRegister keeps the names of the metrics.
func (c collected) MustRegister(all ...prometheus.Collector) {
	for _, one := range all {
		described := make(chan *prometheus.Desc, 10)
		one.Describe(described)
		close(described)
		for d := range described {
			c.names[metricOf.FindStringSubmatch(d.String())[1]] = true
		}
	}
}

// The dashboard shows each metric of the Kafka clients, except for the uncompressed size of
// fetched records and the histograms that have no data (kprom.Histograms), and no other one.
func TestKafkaMetrics_AreOnTheDashboard(t *testing.T) {
	t.Parallel()
	reg := collected{prometheus.NewRegistry(), map[string]bool{}}
	newKafkaMetrics(reg)
	text, err := os.ReadFile("../../deploy/grafana/dashboards/outbox.json")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, name := range []string{"fetch_uncompressed_bytes_total", "read_time_seconds", "read_wait_seconds", "write_time_seconds", "write_wait_seconds"} {
		shown[kafkaNamespace+"_"+name] = true
	}
	for _, name := range regexp.MustCompile(kafkaNamespace+`_[a-z0-9_]+`).FindAllString(string(text), -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		shown[name] = true
	}
	if !maps.Equal(shown, reg.names) {
		t.Errorf("shown are %v, exported are %v", slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(reg.names)))
	}
}
