package dedup

import (
	"sync"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// shares returns shards that share a pool.
func shares(n, events, aggregates int) (p *Pool, all []*Share) {
	p = new(Pool)
	for range n {
		s := p.Share(events, aggregates)
		s.Join()
		all = append(all, s)
	}
	return p, all
}

func TestShare_IsAnEqualPart(t *testing.T) {
	t.Parallel()
	p, all := shares(1, 100_000, 20_000)
	check := func(what string, s *Share, events, aggregates int) {
		t.Helper()
		if s.Events() != events || s.Aggregates() != aggregates {
			t.Errorf("%s has %d events and %d aggregates, want %d and %d", what, s.Events(), s.Aggregates(), events, aggregates)
		}
	}
	first, second := all[0], p.Share(100_000, 20_000)
	check("a shard alone", first, 100_000, 20_000)
	second.Leave() // it has not joined
	check("a shard before another one joins", first, 100_000, 20_000)
	second.Join()
	second.Join() // a restart of its relay
	check("the first of two", first, 50_000, 10_000)
	check("the second", second, 50_000, 10_000)
	first.Leave()
	first.Leave()
	check("the one that is left", second, 100_000, 20_000)
	_, all = shares(64, 100_000, 20_000)
	check("one of 64", all[0], LeastEvents, LeastAggregates)
	_, all = shares(64, LeastEvents-1, LeastAggregates-1)
	check("one of 64 with less than a shard needs", all[0], LeastEvents-1, LeastAggregates-1)
}

// A process that takes over the shards of another one remembers what both published, and
// no more than that; each shard has room for its share in any case.
func TestShare_ReadBack(t *testing.T) {
	t.Parallel()
	const whole, least = 800_000, 800_000 / 4 / 4 * 3
	for _, x := range []struct {
		held [3]int // by the others
		want int
	}{
		{[3]int{}, whole / 4 * 3},
		{[3]int{whole / 2, whole / 2, 0}, whole / 4 * 3},
		{[3]int{whole, whole / 2, 0}, whole / 2},
		{[3]int{whole, whole / 2, whole/2 - least - 1}, least + 1},
		{[3]int{whole, whole / 2, whole / 2}, least},
		{[3]int{whole, whole, whole}, least},
	} {
		_, all := shares(4, whole, 0)
		for i, n := range x.held {
			all[i].Hold(1)
			all[i].Hold(n)
		}
		all[3].Hold(whole) // its own
		if got := all[3].ReadBack(); got != x.want {
			t.Errorf("others hold %v: ReadBack() = %d, want %d", x.held, got, x.want)
		}
	}
	p, all := shares(4, whole, 0)
	for _, s := range all[1:] {
		s.Hold(whole)
		s.Leave()
		s.Hold(whole) // its status is read once more
	}
	if got := all[0].ReadBack(); got != whole/4*3 || p.held.Load() != 0 {
		t.Errorf("others have left: ReadBack() = %d, %d events held, want %d and none", got, p.held.Load(), whole/4*3)
	}
}

// An index and lines follow their share when it becomes smaller and larger.
func TestShare_IndexAndLines(t *testing.T) {
	t.Parallel()
	const events, aggregates = 100_000, 20_000
	p, all := shares(1, events, aggregates)
	x, l := New(all[0].Events), NewLines(all[0].Aggregates, idle)
	next := 0
	check := func(n int) {
		t.Helper()
		for range 2 * aggregates { // more than each has room for
			id := relaytest.EventID(next)
			x.AddShown(id, int64(next), true)
			l.Keep(id, Line{1, 2})
			next++
		}
		if most := events / n / 2; x.Shown() > most || x.Shown() < most/2 {
			t.Errorf("%d shards: %d events are kept, want %d at most", n, x.Shown(), most)
		}
		if most := aggregates / n; l.Len() > most || l.Len() < most/2 {
			t.Errorf("%d shards: %d aggregates are kept, want %d at most", n, l.Len(), most)
		}
	}
	check(1)
	others := []*Share{p.Share(events, aggregates), p.Share(events, aggregates), p.Share(events, aggregates)}
	for _, s := range others {
		s.Join()
	}
	check(4)
	for _, s := range others {
		s.Leave()
	}
	check(1)
}

func TestShare_Concurrently(t *testing.T) {
	t.Parallel()
	p, all := shares(8, 1_000_000, 0)
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			for n := range 1000 {
				s.Hold(n * i)
				_ = s.ReadBack()
				if n%10 == 9 {
					s.Leave()
					s.Hold(7)
					s.Join()
				}
			}
			s.Leave()
		})
	}
	wg.Wait()
	if p.Shards() != 0 || p.held.Load() != 0 {
		t.Errorf("%d shards hold %d events when all have left", p.Shards(), p.held.Load())
	}
}
