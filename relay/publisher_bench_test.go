package relay

import (
	"context"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// BenchmarkPublisher is what an event costs from the hand-over by the sweep to
// its acknowledgement, the client and the broker's answer included.
func BenchmarkPublisher(b *testing.B) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "T"))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	cfg := Config{Brokers: cluster.ListenAddrs(), Keyspace: "k", Registerer: prometheus.NewRegistry()}
	cfg = cfg.withDefaults()
	m := newMetrics(prometheus.NewRegistry())
	p, err := newPublisher(&cfg, m, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	progress := newStreamProgress(time.Unix(0, 0), []byte("stream"), gocql.MinTimeUUID(time.Unix(1, 0)), cfg.MaxStreamBacklog)
	s := &sequencer{publisher: p, log: cfg.Logger, metrics: m}
	payload := make([]byte, 512)
	headers := map[string]string{outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		e := outbox.Event{
			ID: benchID(1, i), AggregateID: benchID(2, i), Sequence: 1, AggregateType: "bench", Type: "T",
			Payload: payload, Headers: headers, CreatedAt: time.Unix(1, 0),
		}
		if err := s.take(context.Background(), progress, gocql.MinTimeUUID(time.UnixMicro(int64(2e6+i))), []storedEvent{{e, 0, nil}}); err != nil {
			b.Fatal(err)
		}
	}
	if left := p.drain(context.Background()); left > 0 {
		b.Errorf("%d events are left", left)
	}
}

func benchID(kind byte, i int) gocql.UUID {
	return gocql.UUID{kind, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i), 0, 0x80, 0, 0x80, 15: 1}
}
