package app

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The clients of a process share their metrics: several are open at the same time, and what
// a closed one counted is kept. No label is a topic or a partition.
func TestObserve_CountsSeveralKafkaClients(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "things", "others"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	c, err := configOf(t, "", nil, "--kafka-seeds", strings.Join(broker.ListenAddrs(), ","))
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
