//go:build unix

package relay

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// BenchmarkPublisher_Overhead publishes the same records to the same broker by the relay (sequencer,
// breaker, retries, dead letters and the dedup index), by franz-go alone, and by the relay in pages, in
// turns. overhead-% is how much more time the relay takes, cpu-overhead-% how much more of the processor,
// which others that use it too do not change as much. The broker's own work is in all of them.
func BenchmarkPublisher_Overhead(b *testing.B) {
	const round = 20_000
	addrs := startBenchBroker(b, "T")
	r := newBenchRelay(b, addrs)
	raw := newBenchRaw(b, addrs, r.cfg.MaxInFlightRecords)
	var took, used [3]time.Duration
	n := 0
	for b.Loop() {
		for turn := range 3 {
			which := (n + turn) % 3 // none is always first
			runtime.GC()
			began, cpu := time.Now(), processorTime(b)
			switch which {
			case 0:
				r.publish(b, 2*n*round, round)
			case 1:
				publishRaw(b, raw, &r.cfg, n*round, round)
			case 2:
				r.publishPages(b, (2*n+1)*round, round)
			}
			took[which] += time.Since(began)
			used[which] += processorTime(b) - cpu
		}
		n++
	}
	events := float64(n * round)
	b.ReportMetric(float64(took[0].Nanoseconds())/events, "relay-ns/event")
	b.ReportMetric(float64(took[1].Nanoseconds())/events, "franz-go-ns/event")
	b.ReportMetric(100*(took[0].Seconds()/took[1].Seconds()-1), "overhead-%")
	b.ReportMetric(float64(used[0].Nanoseconds())/events, "relay-cpu-ns/event")
	b.ReportMetric(float64(used[1].Nanoseconds())/events, "franz-go-cpu-ns/event")
	b.ReportMetric(100*(used[0].Seconds()/used[1].Seconds()-1), "cpu-overhead-%")
	b.ReportMetric(float64(took[2].Nanoseconds())/events, "pages-ns/event")
	b.ReportMetric(float64(used[2].Nanoseconds())/events, "pages-cpu-ns/event")
}

// processorTime is what this process has used of the processor.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// newBenchRaw is a producer with the same guarantees as the relay's.
func newBenchRaw(b *testing.B, addrs []string, inFlight int) *kgo.Client {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.MaxBufferedRecords(inFlight), kgo.ProducerBatchMaxBytes(Defaults().MaxRecordBytes))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	return client
}

// publishRaw produces the records of n events and waits until they are acknowledged.
func publishRaw(b *testing.B, client *kgo.Client, cfg *Config, first, n int) {
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			b.Error(err)
		}
	}
	for i := first; i < first+n; i++ {
		e := relaytest.BenchEvent(i)
		client.Produce(context.Background(), &kgo.Record{
			Topic: "T", Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, cfg.Source),
		}, done)
	}
	if err := client.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}
