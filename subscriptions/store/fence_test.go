package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// lost are the ways in which a lightweight transaction ends without its answer.
var lost = map[string]faults.Effect{
	"not applied": {Failure: faults.WriteTimeout(faults.CAS, 1, 2)},
	"decided":     {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided},
	"applied":     {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply},
	"refused":     {Failure: faults.Unavailable(1, 2)},
}

// The writes of a former owner change nothing.
func TestFence_ChangesOfAFormerOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	former, owner := b.another(t), b.another(t)
	old := claim(t, former, "i-1")
	must(t, former.Save(t.Context(), testPartition, old, messages(1, 4)))
	epoch := claim(t, owner, "i-2")
	must(t, owner.Save(t.Context(), testPartition, epoch, messages(4, 5)))
	if epoch <= old {
		t.Errorf("epochs %d and %d: the second must be larger", old, epoch)
	}
	ctx := t.Context()
	for what, err := range map[string]error{
		"Save":            former.Save(ctx, testPartition, old, messages(8, 9)),
		"Remove":          former.Remove(ctx, testPartition, old, []int64{1}),
		"RemoveAll":       former.RemoveAll(ctx, testPartition, old),
		"another process": b.another(t).Remove(ctx, testPartition, old, []int64{1}),
		"its next one":    owner.Save(ctx, testPartition, old, messages(8, 9)),
	} {
		if !errors.Is(err, ErrFenced) || errors.Is(err, ErrUnknown) {
			t.Errorf("%s of the former owner: %v, want ErrFenced", what, err)
		}
	}
	same(t, "afterwards", offsets(t, b.another(t)), 1, 2, 3, 4)
	got, err := b.Owner(ctx, testPartition)
	if err != nil || got != (Owner{epoch, "i-2"}) {
		t.Errorf("Owner() = %+v, %v", got, err)
	}
	if got, err = b.Owner(ctx, Partition{"x", "y", 1}); err != nil || got != (Owner{}) {
		t.Errorf("Owner() of a partition without claims = %+v, %v", got, err)
	}
}

// Concurrent claims get different epochs; the owner of the largest can write.
func TestClaimPartition_Races(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 8
	stores, epochs := make([]*Store, n), make([]int64, n)
	var wg sync.WaitGroup
	for i := range n {
		stores[i] = b.another(t)
		wg.Go(func() {
			var err error
			if epochs[i], err = stores[i].ClaimPartition(t.Context(), testPartition, "same name"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sorted := slices.Sorted(slices.Values(epochs))
	if len(slices.Compact(sorted)) != n {
		t.Fatalf("epochs %v: want different ones", epochs)
	}
	for i, s := range stores {
		err := s.Save(t.Context(), testPartition, epochs[i], messages(int64(i), int64(i)+1))
		if won := epochs[i] == slices.Max(epochs); won != (err == nil) || !won && !errors.Is(err, ErrFenced) {
			t.Errorf("Save() in epoch %d of %v: %v", epochs[i], epochs, err)
		}
	}
}

// Each change is applied exactly once when the answer of any of its statements is lost.
func TestWrite_UnknownOutcomesAreDetermined(t *testing.T) {
	t.Parallel()
	for name, effect := range lost {
		for count := range 3 {
			t.Run(fmt.Sprintf("%s %d times", name, count+1), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				first := claim(t, b.Store, "i-1")
				must(t, b.Save(t.Context(), testPartition, first, messages(10, 12)))
				fault := func(what string, f func() error) {
					t.Helper()
					hits := b.Fault(count+1, effect, engine.OpCAS)
					if err := f(); err != nil || hits() == 0 {
						t.Fatalf("%s: %v after %d faults", what, err, hits())
					}
					b.Node.Faults().Clear()
				}
				var epoch int64
				fault("claim", func() (err error) {
					epoch, err = b.ClaimPartition(t.Context(), testPartition, "i-2")
					return err
				})
				if epoch != first+1 {
					t.Errorf("epoch %d, want %d: one claim is one epoch", epoch, first+1)
				}
				fault("save", func() error { return b.Save(t.Context(), testPartition, epoch, messages(5, 7)) })
				same(t, "after Save", offsets(t, b.Store), 5, 6, 10, 11)
				large := message(8)
				large.Record.Value = make([]byte, 2*maxBytes)
				fault("save a large record", func() error { return b.Save(t.Context(), testPartition, epoch, []Stored{large}) })
				fault("remove", func() error { return b.Remove(t.Context(), testPartition, epoch, []int64{5, 10}) })
				same(t, "after Remove", offsets(t, b.Store), 6, 8, 11)
				fault("remove all", func() error { return b.RemoveAll(t.Context(), testPartition, epoch) })
				fault("trim", func() error { return b.Trim(t.Context(), testPartition, epoch, 5000) })
				same(t, "at the end", offsets(t, b.Store))
			})
		}
	}
}

// inBubble runs a test in virtual time. Its stores have the default time limits. Such tests
// are not parallel: the driver reuses channels of other tests' connections. Two garbage collections
// remove the channels of the bubble before other tests run.
func inBubble(t *testing.T, f func(*testing.T, *fixture)) {
	t.Helper()
	defer func() { runtime.GC(); runtime.GC() }()
	scyllatest.Bubble(t, func(t *testing.T) { f(t, setup(t, defaultTimes)) })
}

var defaultTimes = WithTimeouts(DefaultAttemptTimeout, DefaultBudget)

// A statement that the database begins to execute after its client has given up does
// nothing: the owner has written since, or another owner has claimed the partition.
func TestWrite_StatementsThatBeginLate(t *testing.T) {
	late := faults.Effect{Delay: time.Minute}
	large := message(1)
	large.Record.Value = make([]byte, 2*maxBytes)
	for name, saved := range map[string]Stored{"batch": message(1), "statement": large} {
		t.Run("own "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				epoch := claim(t, b.Store, "i-1")
				hits := b.Fault(1, late, engine.OpCAS)
				must(t, b.Save(t.Context(), testPartition, epoch, []Stored{saved}))
				same(t, "after Save", offsets(t, b.Store), 1)
				must(t, b.Remove(t.Context(), testPartition, epoch, []int64{1}))
				time.Sleep(2 * time.Minute)
				same(t, "after the late statement", offsets(t, b.Store))
				if hits() != 1 {
					t.Errorf("%d statements were late, want 1", hits())
				}
			})
		})
		t.Run("a former owner's "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				epoch := claim(t, b.Store, "i-1")
				b.Fault(0, late, engine.OpCAS)
				if err := b.Save(t.Context(), testPartition, epoch, []Stored{saved}); !errors.Is(err, ErrUnknown) {
					t.Fatalf("Save() without an answer: %v, want ErrUnknown", err)
				}
				b.Node.Faults().Clear()
				other := b.another(t, defaultTimes)
				epoch = claim(t, other, "i-2")
				same(t, "with the next owner", offsets(t, other))
				time.Sleep(2 * time.Minute)
				same(t, "after the late statements", offsets(t, other))
				must(t, other.Save(t.Context(), testPartition, epoch, messages(2, 3)))
			})
		})
	}
	t.Run("a claim", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *fixture) {
			b.Fault(1, late, engine.OpCAS)
			if got := claim(t, b.Store, "i-1"); got != 1 {
				t.Errorf("epoch %d, want 1", got)
			}
			time.Sleep(2 * time.Minute)
			must(t, b.Save(t.Context(), testPartition, 1, messages(1, 2)))
		})
	})
}

// A write that was decided when its owner failed is visible to the next owner, and one that
// was not never is.
func TestClaimPartition_FinishesTheWritesOfTheFormerOwner(t *testing.T) {
	for name, effect := range lost {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				epoch := claim(t, b.Store, "i-1")
				must(t, b.Save(t.Context(), testPartition, epoch, messages(1, 2)))
				b.Fault(1, effect, engine.OpCAS)
				b.Fault(0, faults.Effect{Failure: faults.ReadTimeout(1, 2)}, engine.OpSerialRead)
				err := b.Save(t.Context(), testPartition, epoch, messages(2, 3))
				if got := errors.Is(err, ErrUnknown); err == nil || got != (name != "refused") {
					t.Fatalf("Save() without an answer: %v", err)
				}
				b.Node.Faults().Clear()
				other := b.another(t, defaultTimes)
				claim(t, other, "i-2")
				want := []int64{1, 2}
				if name == "not applied" || name == "refused" {
					want = want[:1]
				}
				same(t, "with the next owner", offsets(t, other), want...)
				if err := b.Save(t.Context(), testPartition, epoch, messages(2, 3)); !errors.Is(err, ErrFenced) {
					t.Errorf("Save() of the former owner: %v, want ErrFenced", err)
				}
				time.Sleep(time.Hour)
				same(t, "an hour later", offsets(t, other), want...)
			})
		})
	}
}

// random is a number of owners that claim a partition and write it, while answers are lost
// and statements are late.
type random struct {
	*fixture
	t      *testing.T
	rnd    *rand.Rand
	owners []*Store
	epochs []int64
	last   int // the owner of the largest epoch
	// stored are the offsets that are stored; maybe those whose last change has an unknown
	// outcome.
	stored, maybe map[int64]bool
}

// After any sequence of claims and writes of several owners, with lost answers and late statements,
// the next owner reads exactly the confirmed changes; a change with an unknown outcome is applied
// or not, for good.
func TestStore_RandomOwners(t *testing.T) {
	runs := 30
	if testing.Short() {
		runs = 5
	}
	for seed := range seeds.Range(t, uint64(runs)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *fixture) {
				r := &random{fixture: b, t: t, rnd: rand.New(rand.NewPCG(seed, 's')), epochs: make([]int64, 3), stored: map[int64]bool{}, maybe: map[int64]bool{}}
				for range r.epochs {
					r.owners = append(r.owners, b.another(t, defaultTimes))
				}
				r.claim()
				for range 60 {
					r.faults()
					if r.rnd.IntN(6) == 0 {
						r.Node.Faults().Clear()
						r.claim()
					} else {
						r.write()
					}
					if r.rnd.IntN(8) == 0 {
						time.Sleep(2 * time.Minute)
					}
				}
				r.Node.Faults().Clear()
				r.claim()
				time.Sleep(5 * time.Minute)
				r.check()
			})
		})
	}
}

func (r *random) faults() {
	r.Node.Faults().Clear()
	effects := []faults.Effect{lost["not applied"], lost["decided"], lost["applied"], lost["refused"], {Delay: time.Minute}}
	if r.rnd.IntN(2) == 0 {
		r.Fault(1+r.rnd.IntN(4), effects[r.rnd.IntN(len(effects))], engine.OpCAS)
	}
	if r.rnd.IntN(4) == 0 {
		r.Fault(1+r.rnd.IntN(30), faults.Effect{Failure: faults.ReadTimeout(1, 2)}, engine.OpSerialRead)
	}
}

func (r *random) claim() {
	r.t.Helper()
	r.last = r.rnd.IntN(len(r.owners))
	r.epochs[r.last] = claim(r.t, r.owners[r.last], fmt.Sprint("i-", r.last))
	r.check()
}

// check compares the stored messages with the model, which learns unknown outcomes.
func (r *random) check() {
	r.t.Helper()
	got := map[int64]bool{}
	for _, o := range offsets(r.t, r.owners[r.last]) {
		got[o] = true
	}
	for o := range int64(10) {
		if got[o] != r.stored[o] && !r.maybe[o] {
			r.t.Fatalf("message %d is stored: %v, want %v", o, got[o], r.stored[o])
		}
	}
	r.stored, r.maybe = got, map[int64]bool{}
}

func (r *random) write() {
	r.t.Helper()
	i := r.rnd.IntN(len(r.owners))
	if r.rnd.IntN(3) > 0 {
		i = r.last
	}
	if r.epochs[i] == 0 {
		return
	}
	save := r.rnd.IntN(2) == 0
	var some []int64
	var batch []Stored
	for range 1 + r.rnd.IntN(3) {
		m := message(r.rnd.Int64N(10))
		some, batch = append(some, m.Offset), append(batch, m)
	}
	var err error
	if save {
		err = r.owners[i].Save(r.t.Context(), testPartition, r.epochs[i], batch)
	} else {
		err = r.owners[i].Remove(r.t.Context(), testPartition, r.epochs[i], some)
	}
	former := r.epochs[i] != r.epochs[r.last]
	switch {
	case former && err == nil, !former && errors.Is(err, ErrFenced):
		r.t.Fatalf("owner %d of epoch %d: %v; the epoch is %d", i, r.epochs[i], err, r.epochs[r.last])
	case err == nil:
		for _, o := range some {
			r.stored[o] = save
			delete(r.maybe, o)
		}
	case errors.Is(err, ErrUnknown) && !former:
		for _, o := range some {
			r.maybe[o] = true
		}
	}
}
