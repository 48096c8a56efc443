package capture

import (
	"context"
	"errors"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func TestSweepShare(t *testing.T) {
	t.Parallel()
	const (
		limit = 1000
		ttl   = 72 * time.Hour
	)
	for _, c := range []struct {
		name string
		readingState
		want float64
	}{
		{"idle", readingState{limit: limit, ttl: ttl}, 1},
		{"tolerated lag", readingState{lag: toleratedLag, limit: limit, ttl: ttl}, 1},
		{"five times that", readingState{lag: 5 * toleratedLag, limit: limit, ttl: ttl}, 1. / 5},
		{"a minute", readingState{lag: time.Minute, limit: limit, ttl: ttl}, leastShare},
		{"rows that the tail reader left", readingState{lag: time.Minute, limit: limit, ttl: ttl, unpublished: true}, 1},
		{"ids at half of their limit", readingState{lag: time.Minute, ids: limit / 2, limit: limit, ttl: ttl}, leastShare},
		{"ids between", readingState{lag: time.Minute, ids: limit * 5 / 8, limit: limit, ttl: ttl}, (1 + leastShare) / 2},
		{"ids at three quarters", readingState{lag: time.Minute, ids: limit * 3 / 4, limit: limit, ttl: ttl}, 1},
		{"more ids than the limit", readingState{lag: time.Minute, ids: 2 * limit, limit: limit, ttl: ttl}, 1},
		{"ids without a limit", readingState{lag: time.Minute, ids: 2 * limit, ttl: ttl}, leastShare},
		{"a quarter of the ttl", readingState{lag: time.Minute, limit: limit, age: ttl / 4, ttl: ttl}, leastShare},
		{"between", readingState{lag: time.Minute, limit: limit, age: ttl * 3 / 8, ttl: ttl}, (1 + leastShare) / 2},
		{"half of the ttl", readingState{lag: time.Minute, limit: limit, age: ttl / 2, ttl: ttl}, 1},
		{"no ttl", readingState{lag: time.Minute, limit: limit, age: 1000 * ttl}, leastShare},
		{"both", readingState{lag: time.Minute, ids: limit * 5 / 8, limit: limit, age: ttl / 2, ttl: ttl}, 1},
	} {
		if got := sweepShare(c.readingState); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: sweepShare() = %g, want %g", c.name, got, c.want)
		}
	}
}

// The share is never zero, grows as the ids approach their limit or the rows the end of their ttl,
// and falls as the tail reader lags. Its rows are never fewer than the least.
func TestSweepShare_IsMonotonic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewSource(1))
	duration := func(upTo time.Duration) time.Duration {
		return time.Duration(rnd.Float64() * rnd.Float64() * float64(upTo))
	}
	for range 20_000 {
		s := readingState{
			lag: duration(10 * time.Minute), ids: rnd.Intn(4_000_000), limit: rnd.Intn(4) * 1_000_000,
			age: duration(100 * time.Hour), ttl: duration(100*time.Hour) * time.Duration(rnd.Intn(2)),
		}
		share := sweepShare(s)
		if share < leastShare || share > 1 {
			t.Fatalf("sweepShare(%+v) = %g", s, share)
		}
		more := s
		switch rnd.Intn(4) {
		case 0:
			more.ids += rnd.Intn(1_000_000)
		case 1:
			more.age += duration(24 * time.Hour)
		case 2:
			more.unpublished = true
		case 3:
			more.lag -= duration(more.lag)
		}
		if got := sweepShare(more); got < share {
			t.Fatalf("sweepShare(%+v) = %g, less than %g for %+v", more, got, share, s)
		}
		if s.limit > 0 && s.ids >= s.limit*3/4 && share < 1 || s.ttl > 0 && s.age >= s.ttl/2 && share < 1 {
			t.Fatalf("sweepShare(%+v) = %g, want no limit", s, share)
		}
		rows := rnd.Float64() * 50_000
		if got := sweepRate(share, rows); got < leastRows || share >= 0.5 && float64(got) < rows {
			t.Fatalf("sweepRate(%g, %g) = %g", share, rows, float64(got))
		}
	}
}

// While the tail reader lags, every stream of the sweep reader takes its turn in the
// order in which they ask. The limit ends with the lag.
func TestTurns_AreFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		lag := func(by time.Duration) {
			for range 100 {
				turns.begin(nil, time.Now().Add(-by), time.Now())
				turns.end(nil, 10, time.Now())
			}
			turns.update(readingState{}, time.Now())
		}
		lag(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		_ = turns.take(ctx) // the turn without a wait: its stream could ask again before others have asked
		taken := make([]int, 100)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range taken {
			wg.Go(func() {
				for turns.take(ctx) == nil {
					mu.Lock()
					taken[i]++
					mu.Unlock()
				}
			})
		}
		time.Sleep(2 * time.Second)
		mu.Lock()
		least, most, sum := slices.Min(taken), slices.Max(taken), 0
		for _, n := range taken {
			sum += n
		}
		mu.Unlock()
		if most-least > 2 {
			t.Errorf("a stream took %d turns while another one took %d", most, least)
		}
		if sum < 2*leastRows-10 || sum > 2*leastRows+10 {
			t.Errorf("%d turns in 2 s at the least share, want %d", sum, 2*leastRows)
		}
		stop()
		wg.Wait()
		if err := turns.take(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("take() after the end = %v", err)
		}
		lag(time.Millisecond)
		if got := turns.rows.Limit(); got != rate.Inf {
			t.Errorf("%g rows per second without a lag, want no limit", float64(got))
		}
	})
}

// The lag is that of readings under way, too, and is forgotten when there are none.
func TestTurns_Lag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.Turns = NewTurns() })
		defer b.stop()
		turns := b.cfg.Turns
		share := func() float64 {
			turns.update(readingState{}, time.Now())
			return turns.share()
		}
		lag := func() time.Duration {
			t.Helper()
			lag, known := turns.Lag(time.Now())
			if !known {
				t.Error("the lag is unknown")
			}
			return lag
		}
		if _, known := NewTurns().Lag(time.Now()); known {
			t.Error("the lag is known without a reading")
		}
		time.Sleep(time.Second)
		if got := share(); got != 1 {
			t.Errorf("share of a fast database = %g, want 1", got)
		}
		if got := lag(); got > toleratedLag {
			t.Errorf("lag of a fast database = %s", got)
		}
		b.log.set(errors.New("no response"), 20*time.Second)
		time.Sleep(10 * time.Second)
		if got := lag(); got < time.Second {
			t.Errorf("lag while the database does not answer = %s", got)
		}
		if got := share(); got > 0.1 {
			t.Errorf("share while the database does not answer = %g, want a tenth at most", got)
		}
		b.log.set(nil, 0)
		time.Sleep(5 * time.Minute)
		if got := share(); got != 1 {
			t.Errorf("share of a fast database after that = %g, want 1", got)
		}
		b.log.set(nil, 200*time.Millisecond)
		time.Sleep(30 * time.Second)
		if got := share(); got > 0.2 {
			t.Errorf("share of a database that takes 200 ms = %g, want a fifth at most", got)
		}
		b.log.set(errors.New("too busy"), 200*time.Millisecond)
		time.Sleep(2 * time.Second)
		if got := share(); got > 0.2 {
			t.Errorf("share of a database that fails after 200 ms = %g, want a fifth at most", got)
		}
	})
}

// The sweep reader does not yield because the settings make the tail reader wait: for its limit of
// queries, and to gather hints.
func TestTurns_WaitsBySettingsAreNoLag(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*settings){
		"limit of queries": func(c *settings) { c.TailLimiter = rate.NewLimiter(2, 1) },
		"hints gathered":   func(c *settings) { c.TailHintInterval = 500 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newTailBench(t, func(c *settings) { c.Turns = NewTurns(); change(c) })
				defer b.stop()
				for i := range 3000 {
					b.tail.Hint([]int64{int64(i % 4)})
					time.Sleep(10 * time.Millisecond)
				}
				b.cfg.Turns.update(readingState{}, time.Now())
				if got := b.cfg.Turns.share(); got != 1 {
					t.Errorf("share of a fast database = %g, want 1", got)
				}
			})
		})
	}
}

// The windows of a stream whose rows are published are read five at a time, unless the sweep reader
// has no time to leave; windows of other streams are not.
func TestConsumer_ReadsSeveralWindowsAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.Turns = NewTurns() })
		defer b.stop()
		time.Sleep(time.Minute)
		passed := func() {
			for _, p := range b.streams.All() {
				p.Idle(gocql.MinTimeUUID(time.Now()))
			}
		}
		s := NewSweep(&b.cfg.Config, b.metrics, Input{Table: &outbox.DefaultTable, TTL: 72 * time.Hour}, nil, b.streams, b.publisher)
		// windows returns how many windows a stream has in a minute that is behind the others.
		windows := func(behind time.Duration) int {
			c, begin, n := &consumer{consumers: &consumers{sweep: s}}, time.Now(), 0
			next := begin.Add(-b.cfg.ConfidenceWindow - behind)
			for time.Since(begin) < time.Minute {
				window, end := time.Now(), next
				for i := range 10 { // rows of the last second
					if err := c.yield(t.Context(), 1, end.Add(time.Duration(i-9)*time.Second/10)); err != nil {
						t.Fatal(err)
					}
				}
				n++
				next = time.Now().Add(-b.cfg.ConfidenceWindow - behind)
				time.Sleep(time.Until(window.Add(b.cfg.BusyDelay)))
			}
			return n
		}
		passed()
		if n := windows(0); n < 11 || n > 15 {
			t.Errorf("%d windows in a minute, want one every five seconds", n)
		}
		if n := windows(time.Hour); n < 55 {
			t.Errorf("%d windows in a minute of a stream with a backlog, want one every second", n)
		}
		b.tail.leave(relaytest.EventID(1))
		if n := windows(0); n < 58 {
			t.Errorf("%d windows in a minute while an event is left, want one every second", n)
		}
	})
}

// The sweep reader yields only where the tail reader published the rows: not before the latter
// has read, and not to where it left an event.
func TestSweep_Yield(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTailBench(t, func(c *settings) { c.Turns = NewTurns() })
		defer b.stop()
		s := NewSweep(&b.cfg.Config, b.metrics, Input{Table: &outbox.DefaultTable, TTL: 72 * time.Hour}, nil, b.streams, b.publisher)
		b.log.set(nil, time.Second)
		limit := func() rate.Limit {
			t.Helper()
			if err := s.yield(t.Context()); err != nil {
				t.Errorf("yield() error = %v", err)
			}
			time.Sleep(turnsUpdated)
			return b.cfg.Turns.rows.Limit()
		}
		passed := func() {
			for _, p := range b.streams.All() {
				p.Idle(gocql.MinTimeUUID(time.Now()))
			}
		}
		if got := limit(); got != rate.Inf {
			t.Errorf("%g rows per second before the tail reader has read, want no limit", float64(got))
		}
		time.Sleep(time.Minute)
		passed()
		if got := limit(); got != leastRows {
			t.Errorf("%g rows per second beside a tail reader that lags, want %d", float64(got), leastRows)
		}
		b.tail.leave(relaytest.EventID(1))
		if got := limit(); got != rate.Inf {
			t.Errorf("%g rows per second while an event is left, want no limit", float64(got))
		}
		passed()
		if got := limit(); got != leastRows {
			t.Errorf("%g rows per second when it is swept, want %d", float64(got), leastRows)
		}
		s.cfg.Turns = nil
		if err := (&consumer{consumers: &consumers{sweep: s}}).yield(t.Context(), 1, time.Now()); err != nil {
			t.Errorf("yield() error without turns = %v", err)
		}
	})
}
