package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
	"github.com/scylla-outbox/scylla-outbox/test/sim/trouble"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const (
	// busy is how long everything fails; quiet is longer than all leases.
	busy, quiet = 40 * time.Second, 30 * time.Second
	aggregates  = 3
	lease       = 6 * time.Second
)

// counts are the things that a simulation is about. A test of all seeds checks that
// each of them occurs.
type counts struct {
	applied, duplicates, gaps, unknown, deaths, ran, stored, busy, late atomic.Int64
}

// simulation is consumers that share all aggregates, and a database that fails.
type simulation struct {
	t      *testing.T
	w      world.World
	rnd    *rand.Rand
	events int64
	counts *counts
	calls  calls
}

// Several consumers, each of which owns every aggregate, get events repeated, in any
// order and from any position. They die at any message while the database fails. Then
// each effect is applied once and in order, and no stored result is replaced.
func TestSeeds(t *testing.T) {
	var c counts
	n := seeds.Each(t, "test/sim/inbox", "INBOX", 40, 10, func(t *testing.T, seed uint64) {
		bubbleWith(t, seed, []string{totals, onceTable}, func(t *testing.T, w world.World) {
			rnd := rand.New(rand.NewPCG(seed, 'i'))
			s := &simulation{t: t, w: w, rnd: rnd, events: 5 + rnd.Int64N(20), counts: &c}
			s.calls.mu.running = make(map[string]int)
			s.calls.mu.stored = make(map[string]string)
			s.run()
			s.judge()
		})
	})
	for name, v := range map[string]*atomic.Int64{
		"applied": &c.applied, "duplicates": &c.duplicates, "gaps": &c.gaps, "unknown": &c.unknown, "deaths": &c.deaths,
		"effects": &c.ran, "stored results": &c.stored, "busy": &c.busy, "effects past their lease": &c.late,
	} {
		if v.Load() == 0 && n >= 10 {
			t.Errorf("%d seeds had no %s", n, name)
		}
		t.Logf("%s: %d", name, v.Load())
	}
}

func (s *simulation) run() {
	ctx, end := context.WithTimeout(s.t.Context(), busy)
	defer end()
	var all sync.WaitGroup
	for range 2 + s.rnd.IntN(2) {
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 'c'))
		all.Go(func() { s.live(ctx, rnd) })
	}
	d := trouble.Database{
		Node: s.w.Node, Rnd: rand.New(rand.NewPCG(s.rnd.Uint64(), 't')), Calm: 4 * time.Second, Long: 6 * time.Second,
		Often: []float64{0.1, 0.5, 1}, Timeout: statementTimeout,
	}
	all.Go(func() { d.Run(ctx) })
	all.Wait()
	s.w.Node.Faults().Clear()
	time.Sleep(quiet)
}

// live runs one consumer process after the other.
func (s *simulation) live(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		l := &line.Line{}
		session := connect(s.t, s.w.Node, l)
		process, died := context.WithCancel(ctx)
		// The fence and the table of ids are configured once the process runs.
		if fence, once, err := open(process, session); err == nil {
			if rnd.IntN(4) > 0 {
				l.Arm(1+rnd.IntN(60), rnd.IntN(2) == 0, died)
			}
			var all sync.WaitGroup
			for i := range aggregates {
				rnd := rand.New(rand.NewPCG(rnd.Uint64(), 'a'))
				all.Go(func() { s.consume(process, rnd, fence, fmt.Sprint("aggregate ", i)) })
			}
			all.Go(func() { s.add(process, session, fence) })
			rnd := rand.New(rand.NewPCG(rnd.Uint64(), 'o'))
			all.Go(func() { s.call(process, rnd, once) })
			all.Wait()
			if l.Dead() {
				s.counts.deaths.Add(1)
			}
		}
		died()
		session.Close()
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(2*time.Second))))
	}
}

func open(ctx context.Context, session *gocql.Session) (*inbox.Fence, *inbox.Once, error) {
	f, err := inbox.NewFence(ctx, session, inbox.FenceConfig{Table: "totals"})
	if err != nil {
		return nil, nil, err
	}
	o, err := inbox.NewOnce(ctx, session, inbox.OnceConfig{Table: "mails", Lease: lease})
	return f, o, err
}

// consume delivers the events of an aggregate from any position, some of them repeated
// or too early, until ctx ends.
func (s *simulation) consume(ctx context.Context, rnd *rand.Rand, f *inbox.Fence, id string) {
	next := int64(1)
	for ctx.Err() == nil {
		seq := next
		switch rnd.IntN(8) {
		case 0:
			seq = 1 + rnd.Int64N(s.events) // any event
		case 1:
			seq = max(1, next-1)
		}
		attempt, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.Int64N(int64(10*time.Second))))
		got, err := f.Apply(attempt, inbox.Event{Key: inbox.Key{id}, Sequence: seq}, effect(id, seq))
		cancel()
		gap, missing := errors.AsType[*inbox.GapError](err)
		switch {
		case missing:
			s.counts.gaps.Add(1)
			next = gap.Want
		case err != nil:
			s.counts.unknown.Add(1)
		case got == inbox.Applied:
			s.counts.applied.Add(1)
			next = seq + 1
		default:
			s.counts.duplicates.Add(1)
			next = seq + 1
		}
		if next > s.events {
			next = 1 + rnd.Int64N(s.events) // the partition is assigned again
		}
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(500*time.Millisecond))))
	}
}

// account is an aggregate whose effects depend on the state that was read.
const account = "account"

// add adds the numbers of events to a sum that it reads with the mark, until ctx ends.
func (s *simulation) add(ctx context.Context, session *gocql.Session, f *inbox.Fence) {
	for ctx.Err() == nil {
		var mark, sum int64
		err := session.Query("SELECT applied_seq, sum FROM totals WHERE id = ?", account).WithContext(ctx).Consistency(gocql.Serial).Scan(&mark, &sum)
		if err == nil || errors.Is(err, gocql.ErrNotFound) {
			_, _ = f.Apply(ctx, inbox.Event{Key: inbox.Key{account}, Sequence: mark + 1}, func(b *gocql.Batch) error {
				b.Query("UPDATE totals SET sum = ? WHERE id = ?", sum+mark+1, account)
				return nil
			})
		}
		_ = retry.Wait(ctx, 100*time.Millisecond)
	}
}

// judge delivers all events once more, and checks the effects.
func (s *simulation) judge() {
	f, o, err := open(s.t.Context(), s.w.Session)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range aggregates {
		id := fmt.Sprint("aggregate ", i)
		for _, seq := range numbers(s.events) {
			if _, err := apply(s.t, f, id, seq); err != nil {
				s.t.Errorf("event %d of %s: %v", seq, id, err)
			}
		}
		mustHave(s.t, s.w.Session, id, numbers(s.events)...)
	}
	var mark, sum int64
	if err := s.w.Session.Query("SELECT applied_seq, sum FROM totals WHERE id = ?", account).Consistency(gocql.Serial).Scan(&mark, &sum); err != nil || mark == 0 || sum != mark*(mark+1)/2 {
		s.t.Errorf("the sum of %d events is %d, %v", mark, sum, err)
	}
	for id, want := range s.calls.mu.stored {
		got, first, err := o.Do(s.t.Context(), id, func(context.Context) ([]byte, error) { return nil, errors.New("it ran again") })
		if string(got) != want || first || err != nil {
			s.t.Errorf("%s = %q, %t, %v; want the stored result %q", id, got, first, err, want)
		}
	}
}

// calls are the effects of Once.
type calls struct {
	mu struct {
		sync.Mutex
		running map[string]int
		stored  map[string]string // results that a call returned without an error
		runs    int
	}
}

// call runs effects, some of which fail, until ctx ends.
func (s *simulation) call(ctx context.Context, rnd *rand.Rand, o *inbox.Once) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprint("mail ", rnd.IntN(12))
		length, fails := time.Duration(rnd.Int64N(int64(2*lease))), rnd.IntN(4) == 0
		attempt, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.Int64N(int64(15*time.Second))))
		began := time.Now()
		got, first, err := o.Do(attempt, id, func(ctx context.Context) ([]byte, error) { return s.effect(ctx, id, length, fails) })
		cancel()
		_, busy := errors.AsType[*inbox.BusyError](err)
		switch {
		case busy:
			s.counts.busy.Add(1)
		case err == nil:
			s.keep(id, string(got), first)
		case first && time.Since(began) > lease:
			s.counts.late.Add(1)
		}
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(time.Second))))
	}
}

// effect runs for some time. No other effect of the id may run, and none whose result
// is stored may run again.
func (s *simulation) effect(ctx context.Context, id string, length time.Duration, fails bool) ([]byte, error) {
	c := &s.calls
	c.mu.Lock()
	if result, ok := c.mu.stored[id]; ok {
		s.t.Errorf("%s runs again, after its result %q was stored", id, result)
	}
	if c.mu.running[id]++; c.mu.running[id] > 1 {
		s.t.Errorf("%s runs %d times at a time", id, c.mu.running[id])
	}
	c.mu.runs++
	result := fmt.Appendf(nil, "%s, run %d", id, c.mu.runs)
	c.mu.Unlock()
	s.counts.ran.Add(1)
	err := retry.Wait(ctx, length)
	c.mu.Lock()
	c.mu.running[id]--
	c.mu.Unlock()
	if fails {
		err = errors.New("refused")
	}
	return result, err
}

// keep records a result that was stored.
func (s *simulation) keep(id, result string, first bool) {
	c := &s.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	if first {
		s.counts.stored.Add(1)
	}
	if was, ok := c.mu.stored[id]; ok && was != result {
		s.t.Errorf("%s returned %q, and then %q", id, was, result)
	}
	c.mu.stored[id] = result
}
