package schedule

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestNextRate(t *testing.T) {
	t.Parallel()
	const past = 10 * time.Millisecond
	grown := func(power float64) float64 { return 10_000 * math.Exp(power) }
	all := int(10_000 * past.Seconds())
	for _, c := range []struct {
		name string
		releaseState
		want float64
	}{
		{"no lag", releaseState{rate: 10_000, past: past, released: all, known: true, most: 1e6}, grown(1. / 30)},
		{"half of the aimed lag", releaseState{rate: 10_000, past: past, released: all, before: aimedLag / 2, lag: aimedLag / 2, known: true, most: 1e6}, grown(1. / 60)},
		{"the aimed lag", releaseState{rate: 10_000, past: past, released: all, before: aimedLag, lag: aimedLag, known: true, most: 1e6}, 10_000},
		{"twice that", releaseState{rate: 10_000, past: past, released: all, before: 2 * aimedLag, lag: 2 * aimedLag, known: true, most: 1e6}, grown(-1. / 30)},
		{"a minute", releaseState{rate: 10_000, past: past, released: all, before: time.Minute, lag: time.Minute, known: true, most: 1e6}, grown(-1. / 30)},
		{"a lag that grows", releaseState{rate: 10_000, past: past, released: all, before: aimedLag / 2, lag: aimedLag, known: true, most: 1e6}, grown(-paceDamping / 2)},
		{"a lag that shrinks", releaseState{rate: 10_000, past: past, released: all, before: 2 * aimedLag, lag: aimedLag, known: true, most: 1e6}, grown(paceDamping)},
		{"a greater one that shrinks", releaseState{rate: 10_000, past: past, released: all, before: 4 * aimedLag, lag: 2 * aimedLag, known: true, most: 1e6}, 10_000},
		{"not used", releaseState{rate: 10_000, past: past, released: all / 2, known: true, most: 1e6}, 10_000},
		{"little and not used", releaseState{rate: leastRate, past: time.Second, known: true, most: 1e6}, leastRate * math.E},
		{"less than the first and not used", releaseState{rate: firstRate - 1, past: time.Second, known: true, most: 1e6}, firstRate},
		{"after a pause", releaseState{rate: 50_000, past: time.Minute, known: true, most: 1e6}, firstRate},
		{"unknown lag", releaseState{rate: 50_000, past: past, released: 500, most: 1e6}, firstRate},
		{"unknown lag and a limit", releaseState{rate: 50_000, past: past, released: 500, most: 10}, 10},
		{"the least", releaseState{rate: leastRate, past: past, before: time.Minute, lag: time.Hour, known: true, most: 1e6}, leastRate},
		{"less than that is permitted", releaseState{rate: 10, past: past, lag: time.Hour, known: true, most: 10}, 10},
		{"the most", releaseState{rate: 10_000, past: past, released: all, known: true, most: 10_000}, 10_000},
	} {
		if got := nextRate(c.releaseState); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: nextRate() = %g, want %g", c.name, got, c.want)
		}
	}
}

// A greater lag never means a greater rate, and no lag one of zero.
func TestNextRate_IsMonotonic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	duration := func(upTo time.Duration) time.Duration {
		return time.Duration(rnd.Float64() * rnd.Float64() * float64(upTo))
	}
	for range 20_000 {
		s := releaseState{
			rate: 1 + rnd.Float64()*1e5, past: duration(2 * time.Second), released: rnd.IntN(1000),
			before: duration(time.Second), lag: duration(time.Second), known: rnd.IntN(4) > 0, most: 1 + rnd.Float64()*1e5,
		}
		got, more := nextRate(s), s
		if got < min(leastRate, s.most) || got > s.most {
			t.Fatalf("nextRate(%+v) = %g", s, got)
		}
		more.lag += duration(time.Second)
		if after := nextRate(more); after > got {
			t.Fatalf("nextRate(%+v) = %g, more than %g for %+v", more, after, got, s)
		}
	}
}

// load is a model of database, relay and broker: they take so many messages per second, and the tail
// reader's lag is the time that those which wait take, known with a delay.
type load struct {
	capacity float64
	waiting  float64
	known    time.Duration
}

// lag returns the time that what waits takes.
func (l *load) lag() time.Duration {
	return time.Duration(l.waiting / l.capacity * float64(time.Second))
}

// release releases what nextRate permits, beginning with a rate, for some time. It returns the last rate,
// the number of messages, and the greatest lag of the second half of the time.
func (l *load) release(rate float64, during time.Duration) (last, released float64, worst time.Duration) {
	const step = paceUpdated
	for at := time.Duration(0); at < during; at += step {
		n, before := rate*step.Seconds(), l.known
		released += n
		l.waiting = max(0, l.waiting+n-l.capacity*step.Seconds())
		l.known += (l.lag() - l.known) / 8 // as the mean of the last readings
		if at >= during/2 {
			worst = max(worst, l.lag())
		}
		rate = nextRate(releaseState{rate, step, int(n + .5), before, l.known, true, DefaultRate})
	}
	return rate, released, worst
}

// The rate finds what a system takes, with a lag near the aimed one, follows it down to the least rate
// where other events need it, and up again.
func TestNextRate_FollowsTheLoad(t *testing.T) {
	t.Parallel()
	for _, capacity := range []float64{2000, 5000, 10_000, 25_000, 50_000} {
		l := &load{capacity: capacity}
		rate, n, worst := l.release(firstRate, 4*time.Second)
		if n < .85*4*capacity || worst > 3*aimedLag/2 {
			t.Errorf("of %g/s %.0f%% were used with a lag of %s", capacity, 25*n/capacity, worst)
		}
		l.capacity = 100 // for as long as the other events need it
		if rate, _, _ = l.release(rate, 10*time.Second); rate != leastRate {
			t.Errorf("%g/s beside a relay that lags, want %d", rate, leastRate)
		}
		l.capacity, l.waiting = capacity, 0
		if _, n, worst = l.release(rate, 6*time.Second); n < .75*6*capacity || worst > 3*aimedLag/2 {
			t.Errorf("after that of %g/s %.0f%% were used with a lag of %s", capacity, 100*n/capacity/6, worst)
		}
	}
}

// releaseAtPace returns how long the release of some messages takes.
func releaseAtPace(t *testing.T, p *pace, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for n > 0 {
		some := min(n, p.together())
		n -= some
		p.update(some, time.Now())
		if err := p.limiter.WaitN(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

// Beside a relay without a lag messages are released faster and faster, and beside one that lags, at the
// least rate. Where the lag is unknown the rate is the first one.
func TestPace_FollowsTheLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		var lag atomic.Int64
		p := newPace(DefaultRate, func() (time.Duration, bool) { return time.Duration(lag.Load()), lag.Load() >= 0 })
		if took := releaseAtPace(t, p, n); took > time.Second {
			t.Errorf("%d messages took %s without a lag", n, took)
		}
		lag.Store(int64(time.Second))
		releaseAtPace(t, p, n)
		if took := releaseAtPace(t, p, n); took < n/leastRate*time.Second || took > (n/leastRate+1)*time.Second {
			t.Errorf("%d messages took %s beside a relay that lags, want %d per second", n, took, leastRate)
		}
		lag.Store(0)
		if took := releaseAtPace(t, p, n); took > 2*time.Second {
			t.Errorf("%d messages took %s without a lag after that", n, took)
		}
		lag.Store(-1)
		releaseAtPace(t, p, n)
		if took := releaseAtPace(t, p, n); took < n/firstRate*time.Second || took > (n/firstRate+1)*time.Second {
			t.Errorf("%d messages took %s with an unknown lag, want %d per second", n, took, firstRate)
		}
	})
}

// The setting is kept, also where it is less than the least rate.
func TestPace_KeepsTheLimit(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 10, 500, 20_000} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace(most, func() (time.Duration, bool) { return 0, true })
			releaseAtPace(t, p, 2*most)
			if took := releaseAtPace(t, p, 10*most); took < 9500*time.Millisecond || took > 11*time.Second {
				t.Errorf("%d messages took %s, want %d per second", 10*most, took, most)
			}
		})
	}
}

// A scheduler asks for the lag of the relay, and releases beside any.
func TestScheduler_AsksForTheLag(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked atomic.Int32
	world.Run(t, b.scheduler(t, func(c *Config) {
		c.Lag = func() (time.Duration, bool) {
			asked.Add(1)
			return time.Hour, true
		}
	}).Run)
	now := time.Now()
	for range 20 {
		b.put(t, now, message(now.Add(-time.Second)))
	}
	world.Eventually(t, "all are released", func() bool { return b.count(t, "outbox_messages") == 20 })
	if asked.Load() == 0 {
		t.Error("the lag was not asked for")
	}
}
