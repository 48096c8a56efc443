package capture

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// One writer per aggregate awaits each acknowledgement, and some writes take long: the
// row is visible only when its write is acknowledged. The order holds however busy the
// stream is.
func TestTailOrder_WritesThatTakeLong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		between, pause time.Duration // between rows of other aggregates, and between a writer's writes
		slowest        time.Duration
		last           time.Duration
	}{
		"busy stream":  {10 * time.Millisecond, time.Second, 3500 * time.Millisecond, 12 * time.Second},
		"quiet stream": {4 * time.Second, 2 * time.Second, 100 * time.Second, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newTailBench(t, func(c *settings) { c.TailMinInterval = 50 * time.Millisecond }, byTime)
				defer b.stop()
				b.log.set(nil, time.Millisecond)
				time.Sleep(time.Second)
				end := time.Now().Add(tt.last)
				want := make(map[gocql.UUID][]gocql.UUID)
				var mu sync.Mutex
				var writers sync.WaitGroup
				for a := range 4 {
					rnd := rand.New(rand.NewPCG(uint64(a), 3))
					writers.Go(func() {
						for i, ends := 0, false; !ends; i++ {
							ends = time.Now().After(end)
							e := unnumberedEvent(a, i)
							mu.Lock()
							want[e.AggregateID.UUID()] = append(want[e.AggregateID.UUID()], e.ID.UUID())
							mu.Unlock()
							took := time.Duration(rnd.IntN(5000)) * time.Microsecond
							if rnd.IntN(6) == 0 && !ends {
								took = time.Duration(rnd.Int64N(int64(tt.slowest)))
							}
							b.log.add(1, e, took)
							time.Sleep(took + time.Duration(rnd.IntN(5000))*time.Microsecond)
							if rnd.IntN(3) == 0 {
								time.Sleep(tt.pause)
							}
						}
					})
				}
				for i := 0; time.Now().Before(end); i++ {
					b.log.add(1, unnumberedEvent(1000+i, i), 0)
					time.Sleep(tt.between)
				}
				writers.Wait()
				time.Sleep(10 * time.Second)
				got := order(b)
				for a, ids := range want {
					if !slices.Equal(got[a], ids) {
						t.Errorf("aggregate %s: %d events in another order than written, or not all of %d", a, len(got[a]), len(ids))
					}
				}
				if n := relaytest.Count(b.published.Late); n != 0 {
					t.Errorf("%v events came late", n)
				}
				rows, again := relaytest.Count(b.metrics.tailRows), relaytest.Count(b.metrics.tailAgain)
				t.Logf("%v rows, %v read again, %d queries", rows, again, len(b.log.since(end.Add(-tt.last))))
			})
		})
	}
}

// The last write of an aggregate to an old generation's stream takes long, and the writer
// continues in a new one's: the order holds for as long as the confidence window, busy
// streams of the new generation or not.
func TestTailOrder_AWriteOutlastsItsGeneration(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{3 * time.Second, 50 * time.Second, 110 * time.Second} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().Add(20 * time.Second)
				b := newTailBench(t, nil, byTime, func(b *tailBench) {
					b.gens = []*cdclog.Generation{cdclog.NewGeneration(begin, [][]byte{memStream(10), memStream(11)}, func(i int) int64 { return int64(i) })}
				})
				defer b.stop()
				for i := range 30 { // more than are read again with each reading
					b.log.add(1, unnumberedEvent(500+i, i), 0)
				}
				time.Sleep(time.Until(begin) - 500*time.Millisecond)
				var writers sync.WaitGroup
				for a := range 20 {
					writers.Go(func() {
						time.Sleep(time.Duration(a) * 17 * time.Millisecond)
						b.log.add(1, unnumberedEvent(a, 1), 0)
						b.log.add(1, unnumberedEvent(a, 2), took)
						time.Sleep(took)
						for n := range 3 {
							b.log.add(10, unnumberedEvent(a, 3+n), 0)
							b.tail.Hint([]int64{10, 0}) // it is read immediately
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				writers.Wait()
				time.Sleep(time.Second)
				got := order(b)
				for a := range 20 {
					var want []gocql.UUID
					for n := range 5 {
						want = append(want, unnumberedEvent(a, 1+n).ID.UUID())
					}
					if id := unnumberedEvent(a, 0).AggregateID.UUID(); !slices.Equal(got[id], want) {
						t.Errorf("aggregate %d: %d events in another order than written, or not all of 5", a, len(got[id]))
					}
				}
				if n := relaytest.Count(b.published.Late); n != 0 {
					t.Errorf("%v events came late", n)
				}
			})
		})
	}
}

// An event that an earlier process published is read again after a start; an older one
// of its aggregate that was not is late, whichever of the two is read first.
func TestPublisher_CountsLateEventsAcrossARestart(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"older one first": 1, "newer one first": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				events := []cdclog.StoredEvent{{Event: unnumberedEvent(1, 1), Written: 1000}, {Event: unnumberedEvent(1, 2), Written: 2000}}
				found := dedup.NewFound()
				found.Add(events[1].ID.UUID(), events[1].AggregateID.UUID(), 0)
				b.publisher.Seed(&found, time.Time{}, time.UnixMicro(events[1].Written))
				if again == 0 {
					slices.Reverse(events)
				}
				for range 2 { // the tail reader and the sweep reader
					for _, e := range events {
						if err := b.publisher.Submit(t.Context(), e, publish.BySweep, publish.Settlement{}); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
					}
				}
				if n := relaytest.Count(b.published.Late); n != 1 {
					t.Errorf("%v late events are counted, want 1", n)
				}
			})
		})
	}
}
