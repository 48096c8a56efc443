package guard

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// database is a model of a database that works on so many statements concurrently; more
// wait in order of arrival.
type database struct{ slots chan struct{} }

// do executes a statement with a mean latency. It varies by a fifth, and a twentieth takes three
// times as long.
func (d *database) do(r *rand.Rand, latency time.Duration) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	f := 0.8 + 0.4*r.Float64()
	if r.IntN(20) == 0 {
		f = 3
	}
	time.Sleep(time.Duration(f * float64(latency)))
}

// phase is a load on a database for some time.
type phase struct {
	rate    float64 // requests per second, as a Poisson process
	lasts   time.Duration
	latency time.Duration
	warm    time.Duration // at its beginning, not counted
}

// outcome is the result of a phase.
type outcome struct {
	offered, served, refused int
	latencies                []time.Duration // of served requests, sorted
	refusal                  time.Duration   // the longest
	limit                    float64         // mean
}

func (o *outcome) p99() time.Duration { return o.latencies[len(o.latencies)*99/100] }

// offer offers requests to l in front of d, phase after phase.
func offer(t *testing.T, l *Limiter, d *database, phases ...phase) []outcome {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]outcome, len(phases))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, p := range phases {
		o := &out[i]
		began := time.Now()
		for at := 0.0; ; {
			at -= math.Log(1-r.Float64()) / p.rate
			intended := time.Duration(at * float64(time.Second))
			if intended >= p.lasts {
				break
			}
			time.Sleep(time.Until(began.Add(intended)))
			counted := intended >= p.warm
			seed := r.Uint64()
			wg.Go(func() {
				err := l.Full()
				if err == nil {
					var leave func()
					if _, leave, err = l.Enter(context.Background(), 1); err == nil {
						start := time.Now()
						d.do(rand.New(rand.NewPCG(seed, 0)), p.latency)
						l.observe(start, time.Since(start))
						leave()
					}
				}
				took := time.Since(began.Add(intended))
				if !counted {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				o.offered++
				o.limit += float64(l.Occupancy().Limit)
				if err != nil {
					o.refused++
					o.refusal = max(o.refusal, took)
					return
				}
				o.served++
				o.latencies = append(o.latencies, took)
			})
		}
	}
	wg.Wait()
	for i := range out {
		slices.Sort(out[i].latencies)
		out[i].limit /= float64(out[i].offered)
	}
	return out
}

// simulate offers phases to a new limiter in front of a database, in virtual time.
func simulate(t *testing.T, parallel int, phases ...phase) []outcome {
	t.Helper()
	l, err := NewLimiter(LimiterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	out := offer(t, l, &database{slots: make(chan struct{}, parallel)}, phases...)
	for i, o := range out {
		t.Logf("%+v: served %d of %d, p99 %s, refused in %s at most, mean limit %.1f", phases[i], o.served, o.offered, o.p99(), o.refusal, o.limit)
		if o.refusal >= time.Millisecond {
			t.Errorf("phase %d: a refusal took %s, want less than 1 ms", i, o.refusal)
		}
		if o.served+o.refused != o.offered {
			t.Errorf("phase %d: %d served and %d refused of %d: accepted requests starve", i, o.served, o.refused, o.offered)
		}
	}
	if o := l.Occupancy(); o.Taken != 0 || o.Waiting != 0 {
		t.Errorf("%+v after all have left", o)
	}
	return out
}

// ceiling is what a database of the model serves per second: a request takes 1.1 times
// the latency on average.
func ceiling(parallel int, latency time.Duration) float64 {
	return float64(parallel) / 1.1 / latency.Seconds()
}

// At 2, 5 and 10 times the capacity at least 90 % of it is served, with a p99 of less
// than four times that of half the load, whatever the capacity is.
func TestLimiter_KeepsGoodputUnderOverload(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		parallel int
		latency  time.Duration
	}{{2, time.Millisecond}, {8, 4 * time.Millisecond}, {32, 4 * time.Millisecond}, {8, 50 * time.Millisecond}, {64, 20 * time.Millisecond}} {
		t.Run(fmt.Sprintf("%d x %s", tt.parallel, tt.latency), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				most := ceiling(tt.parallel, tt.latency)
				lasts := time.Second + max(3*time.Second, time.Duration(5_000/most*float64(time.Second)))
				load := func(n float64) phase { return phase{n * most, lasts, tt.latency, time.Second} }
				out := simulate(t, tt.parallel, load(0.5), load(2), load(5), load(10), load(0.5))
				calm := out[0].p99()
				for i, o := range out[1:4] {
					if rate := float64(o.served) / (lasts - time.Second).Seconds(); rate < 0.9*most {
						t.Errorf("phase %d: %.0f/s are served, %.0f %% of the capacity", i+1, rate, 100*rate/most)
					}
					if o.p99() > 4*calm {
						t.Errorf("phase %d: p99 %s, calm %s", i+1, o.p99(), calm)
					}
				}
				// Half of the capacity arrives at random: a burst may exceed a queue.
				if o := out[4]; o.refused*1000 > o.offered || o.p99() > 2*calm {
					t.Errorf("after the overload %d are refused, p99 %s, before %s", o.refused, o.p99(), calm)
				}
			})
		})
	}
}

// While the database is five times slower its capacity is used too, and afterwards that
// of before. The limit does not rise with the latency of a constant overload.
func TestLimiter_FollowsASlowDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const usual, slow = 4 * time.Millisecond, 20 * time.Millisecond
		most, less := ceiling(8, usual), ceiling(8, slow)
		const lasts, warm = 10 * time.Second, time.Second
		out := simulate(t, 8,
			phase{2 * most, lasts, usual, warm}, phase{2 * most, lasts, slow, warm}, phase{2 * most, 3 * lasts, usual, warm})
		for i, want := range []float64{most, less, most} {
			seconds := float64(lasts-warm) / 1e9
			if i == 2 {
				seconds = float64(3*lasts-warm) / 1e9
			}
			if rate := float64(out[i].served) / seconds; rate < 0.95*want {
				t.Errorf("phase %d: %.0f/s are served, %.0f %% of the capacity", i, rate, 100*rate/want)
			}
			if out[i].limit > 24 {
				t.Errorf("phase %d: the limit is %.0f on average, want about twice the 8 that the database works on", i, out[i].limit)
			}
		}
	})
}

// A burst that the database serves within burstWait is served as a whole.
func TestLimiter_ServesBursts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calm := phase{200, 5 * time.Second, 4 * time.Millisecond, 0}
		burst := phase{1e6, 140 * time.Microsecond, 4 * time.Millisecond, 0} // about 140 requests
		for i, o := range simulate(t, 8, calm, burst, calm) {
			if o.refused > 0 {
				t.Errorf("phase %d: %d of %d are refused", i, o.refused, o.offered)
			}
		}
	})
}
