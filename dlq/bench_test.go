package dlq

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// parallel runs n pieces of work, 32 at a time, and returns how long each took.
func parallel(n int, f func(i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				begun := time.Now()
				if err := f(i); err != nil {
					failed.Store(&err)
				}
				took[i] = time.Since(begun)
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return took, nil
}

func report(b *testing.B, took []time.Duration) {
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "dead_letters/s")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
}

// manyDead returns n dead letters of 100 aggregates, not stored yet.
func manyDead(n int) []*DeadLetter {
	out := make([]*DeadLetter, n)
	for i := range out {
		out[i] = testDeadLetter(fmt.Sprint("a", i%100), int64(i/100+1))
	}
	return out
}

func BenchmarkWrite(b *testing.B) {
	s := setup(b)
	ls := manyDead(b.N)
	b.ResetTimer()
	took, err := parallel(b.N, func(i int) error { _, err := s.Write(b.Context(), ls[i]); return err })
	if err != nil {
		b.Fatal(err)
	}
	report(b, took)
}

func BenchmarkReplay(b *testing.B) {
	s := setup(b)
	ls := manyDead(b.N)
	if _, err := parallel(b.N, func(i int) error { _, err := s.Write(b.Context(), ls[i]); return err }); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	took, err := parallel(b.N, func(i int) error {
		if _, err := s.Claim(b.Context(), ls[i].EventID, me, time.Minute); err != nil {
			return err
		}
		return s.Resolve(b.Context(), ls[i].EventID, me, Outcome{Kind: OutcomeReplayed})
	})
	if err != nil {
		b.Fatal(err)
	}
	report(b, took)
}

// BenchmarkReplayMany is BenchmarkReplay as the relay does it.
func BenchmarkReplayMany(b *testing.B) {
	s := setup(b)
	const many = 32
	ls := manyDead(b.N)
	if _, err := parallel(b.N, func(i int) error { _, err := s.Write(b.Context(), ls[i]); return err }); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	took, err := parallel((b.N+many-1)/many, func(i int) error {
		var ids []gocql.UUID
		for _, l := range ls[i*many : min((i+1)*many, len(ls))] {
			ids = append(ids, l.EventID)
		}
		var settled []Settlement
		for _, c := range s.ClaimMany(b.Context(), ids, me, time.Minute) {
			if c.Err != nil {
				return c.Err
			}
			settled = append(settled, Settlement{c.DeadLetter, Outcome{Kind: OutcomeReplayed}})
		}
		return errors.Join(s.ResolveMany(b.Context(), settled, me)...)
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "dead_letters/s")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
}

// BenchmarkChains measures a start of the relay with 10,000 dead letters.
func BenchmarkChains(b *testing.B) {
	s := setup(b)
	ls := manyDead(10_000)
	if _, err := parallel(len(ls), func(i int) error { _, err := s.Write(b.Context(), ls[i]); return err }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		if err := s.Chains(b.Context(), testTable, func(ChainEntry) error { n++; return nil }); err != nil || n != len(ls) {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkList measures the first hundred dead letters of 10,000 by each criterion.
func BenchmarkList(b *testing.B) {
	s := setup(b)
	ls := manyDead(10_000)
	start := time.Now().UTC().Truncate(time.Hour)
	for i, l := range ls {
		l.FirstFailedAt = start.Add(-time.Duration(i) * 10 * time.Second)
		if i%50 == 0 {
			l.ErrorClass, l.EventType, l.Status = "rare", "OrderCancelled", Suspended
		}
	}
	if _, err := parallel(len(ls), func(i int) error { _, err := s.Write(b.Context(), ls[i]); return err }); err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]Filter{
		"all": {}, "status": {Status: []Status{Suspended}}, "class": {ErrorClass: "rare"}, "type": {EventType: "OrderCancelled"},
		"aggregate": {Aggregate: "a7"}, "time": {Since: start.Add(-20 * time.Hour), Until: start.Add(-19 * time.Hour)},
		"class and status": {ErrorClass: "rare", Status: []Status{Suspended, Pending}}, "none": {ErrorClass: "rare", Status: []Status{Pending}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				err := s.List(b.Context(), f, func(*DeadLetter) error {
					if n++; n == 100 {
						return ErrStop
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Stats(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRequests measures one poll of a relay without requests.
func BenchmarkRequests(b *testing.B) {
	s := setup(b)
	for b.Loop() {
		if _, err := s.Requests(b.Context(), testTable, nil); err != nil {
			b.Fatal(err)
		}
	}
}
