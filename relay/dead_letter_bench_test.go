package relay

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// BenchmarkDeadLettersBesideLoad writes 500 dead letters per second while a relay carries liveRate
// events per second. Each begins at its time, however long earlier ones take, and the times count
// from then. The metric letters/s is the rate until the last dead letter was stored.
func BenchmarkDeadLettersBesideLoad(b *testing.B) {
	const (
		rate  = 500
		round = 2 * time.Second
	)
	w := newLiveWorld(b)
	w.start(func(*Config) {})
	load := w.load()
	length := time.Duration(b.N) * round
	deadLetters := w.benchDeadLetters(0, int(length.Seconds()*rate)+rate)
	b.ResetTimer()
	began := time.Now()
	ctx, end := context.WithTimeout(b.Context(), length)
	defer end()
	var mu sync.Mutex
	var took []time.Duration
	openLoop(ctx, rate, func(i int, at time.Time) {
		status, err := w.store.Write(context.Background(), deadLetters[i])
		if err != nil || status != deadLetters[i].Status {
			b.Errorf("Write() = %s, %v", status, err)
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(at))
	})
	during := window{began, time.Now()}
	b.StopTimer()
	load.stop()
	stand := 0
	if err := w.store.Chains(b.Context(), deadLetters[0].Table, func(dlq.ChainEntry) error { stand++; return nil }); err != nil || stand != len(took) {
		b.Errorf("%d letters stand, %v, want %d", stand, err, len(took))
	}
	slices.Sort(took)
	b.ReportMetric(float64(len(took))/during.to.Sub(during.from).Seconds(), "letters/s")
	b.ReportMetric(percentile(took, 50), "ms-p50")
	b.ReportMetric(percentile(took, 95), "ms-p95")
	live, events := load.during([]window{during})
	b.ReportMetric(live, "live-events/s")
	b.ReportMetric(percentile(events, 95), "live-p95-ms")
}
