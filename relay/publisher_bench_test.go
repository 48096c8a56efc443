package relay

import (
	"context"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// BenchmarkPublisher is what an event costs from the hand-over by the sweep to
// its acknowledgement, the client and the broker's answer included.
func BenchmarkPublisher(b *testing.B) {
	r := newBenchRelay(b, startBenchBroker(b, "T"))
	b.ReportAllocs()
	b.ResetTimer()
	r.publish(b, 0, b.N)
}

func startBenchBroker(b *testing.B, topics ...string) (addrs []string) {
	b.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, topics...))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

// benchRelay is the relay from the sequencer on.
type benchRelay struct {
	cfg       Config
	publisher *publish.Publisher
	pages     *capture.SweptPages
}

func newBenchRelay(b *testing.B, addrs []string) *benchRelay {
	b.Helper()
	r := &benchRelay{cfg: Config{Brokers: addrs, Keyspace: "k", Registerer: prometheus.NewRegistry()}}
	r.cfg = r.cfg.withDefaults()
	r.cfg.deadLetters = new(dlq.Store) // dead letters are on, and there are none
	m := newMetrics(prometheus.NewRegistry())
	p, err := publish.New(r.cfg.publish(), m.Metrics, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	r.publisher = p
	progress := checkpoint.NewStream(time.Unix(0, 0), []byte("stream"), gocql.MinTimeUUID(time.Unix(1, 0)), r.cfg.MaxStreamBacklog)
	r.pages = capture.NewSweptPages(capture.NewSequencer(b.Context(), r.cfg.capture(), m.capture, p, nil), progress, nil)
	return r
}

// publish hands on n events and waits until they are acknowledged.
func (r *benchRelay) publish(b *testing.B, first, n int) {
	for i := first; i < first+n; i++ {
		e := relaytest.BenchEvent(i)
		if err := r.pages.Add(context.Background(), gocql.MinTimeUUID(time.UnixMicro(int64(2e6+i))), []cdclog.StoredEvent{{Event: e, Written: 0, Err: nil}}); err != nil {
			b.Fatal(err)
		}
	}
	r.pages.Submit()
	if left := r.publisher.Drain(context.Background()); left > 0 {
		b.Errorf("%d events are left", left)
	}
}

// BenchmarkPublisher_Readers publishes events of different aggregates that as many readers
// offer as there are cores (-cpu 1,2). wait-ns/event is how long goroutines waited for locks
// of any kind, also of client and broker.
func BenchmarkPublisher_Readers(b *testing.B) {
	r := newBenchRelay(b, startBenchBroker(b, "T"))
	r.publish(b, 0, 1000)
	b.ReportAllocs()
	var next atomic.Int64
	next.Store(1000)
	before := mutexWait(b)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o := publish.Offer{Event: relaytest.BenchEvent(int(next.Add(1))), By: publish.BySweep}
			if v, err := r.publisher.Offer(b.Context(), o); v != publish.Taken || err != nil {
				b.Errorf("offer() = %v, %v, want it taken", v, err)
				return
			}
		}
	})
	if left := r.publisher.Drain(b.Context()); left > 0 {
		b.Errorf("%d events are left", left)
	}
	b.ReportMetric((mutexWait(b)-before)*1e9/float64(b.N), "wait-ns/event")
}

// mutexWait returns how long goroutines of this process have waited for locks, in seconds.
func mutexWait(b *testing.B) float64 {
	b.Helper()
	s := []runtimemetrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	runtimemetrics.Read(s)
	return s[0].Value.Float64()
}

// publishPages is publish in pages of 256 events, as by the tail reader.
func (r *benchRelay) publishPages(b *testing.B, first, n int) {
	b.Helper()
	offers, verdicts := make([]publish.Offer, 0, 256), make([]publish.Verdict, 0, 256)
	for i := first; i < first+n; i += len(offers) {
		offers = offers[:0]
		for k := i; k < min(i+cap(offers), first+n); k++ {
			offers = append(offers, publish.Offer{Event: relaytest.BenchEvent(k), By: publish.ByTail})
		}
		var err error
		if verdicts, err = r.publisher.OfferPage(context.Background(), offers, verdicts[:0]); err != nil {
			b.Fatal(err)
		}
	}
	if left := r.publisher.Drain(context.Background()); left > 0 {
		b.Errorf("%d events are left", left)
	}
}
