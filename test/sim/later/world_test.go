package later

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

const (
	// busy is how long an episode is in which everything happens, quiet how long unfinished work
	// takes at most to turn up after it.
	busy  = 40 * time.Second
	quiet = 80 * time.Second
	// statementTimeout bounds one statement of any process.
	statementTimeout = 2 * time.Second
	// maxSkew is how far a clock may be off.
	maxSkew = 10 * time.Second
)

// world is everything in one bubble.
type world struct {
	t        *testing.T
	rnd      *rand.Rand
	node     *scyllafake.Server
	nodeSkew time.Duration
	// ahead is how far a clock may be ahead of the database's, which gives a row
	// its time where it refuses another's.
	ahead    time.Duration
	watcher  *gocql.Session // nothing goes wrong with it; there is none between episodes
	services []*atomic.Pointer[messages.Service]
	inTurn   bool // callers ask one service after the other, not any
	hosts    []*host
	orders   []*order
	seen     seen
	deaths   atomic.Int32
	failures int // that judge found
	// tailed is how long after its write time a row of every event has to be seen;
	// 0 does not check it.
	tailed time.Duration
}

// simulate runs a story in a bubble, and judges what came of it.
func simulate(t *testing.T, seed uint64, story func(*world)) {
	t.Helper()
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, seed)
		story(w)
		w.settle()
		w.close()
		w.judge()
	})
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 'w')), seen: newSeen()}
	conf := scyllatest.Config()
	conf.Seed = seed
	w.node = scyllatest.Node(t, conf)
	w.sleep(time.Hour) // the CDC generation is old
	return w
}

// people sets the clocks, and puts schedulers and services on hosts that live
// for differently long.
func (w *world) people() {
	skewed := w.rnd.IntN(3) > 0
	skew := func() time.Duration {
		if !skewed {
			return 0
		}
		return time.Duration(w.rnd.Int64N(int64(2*maxSkew))) - maxSkew
	}
	w.nodeSkew = skew()
	w.node.Faults().Clock().SetSkew(w.nodeSkew)
	life := []int{0, 20, 100, 400}[w.rnd.IntN(4)]
	for range 1 + w.rnd.IntN(4) {
		w.hosts = append(w.hosts, &host{w: w, rnd: w.random(), skew: skew(), life: life, run: scheduler})
	}
	for range 2 {
		at := new(atomic.Pointer[messages.Service])
		w.services = append(w.services, at)
		w.hosts = append(w.hosts, &host{w: w, rnd: w.random(), skew: skew(), life: life / 4, run: service(at)})
	}
	for _, h := range w.hosts {
		w.ahead = max(w.ahead, h.skew-w.nodeSkew)
	}
}

func (w *world) random() *rand.Rand { return rand.New(rand.NewPCG(w.rnd.Uint64(), 'r')) }

// aYear lets episodes pass, within a year.
func aYear(w *world) {
	w.people()
	began := time.Now()
	episodes := []time.Time{began}
	for _, at := range []time.Duration{time.Hour, 40 * 24 * time.Hour, 364 * 24 * time.Hour} {
		episodes = append(episodes, began.Add(at/2+time.Duration(w.rnd.Int64N(int64(at/2)))))
	}
	for i, at := range episodes {
		w.sleep(time.Until(at))
		more := plan(w.rnd, len(w.orders), at, 10+w.rnd.IntN(15), episodes[i+1:])
		w.orders = append(w.orders, more...)
		w.episode(more)
	}
}

// settle lets all that is left be done: everything is well again, with one scheduler whose clock
// goes right. It waits long enough that messages due long ago are known to be gone.
func (w *world) settle() {
	w.hosts = []*host{{w: w, rnd: w.random(), run: scheduler}}
	w.during(func() { time.Sleep(2*maxSkew + quiet) })
	w.sleep(20 * time.Minute)
	w.during(func() { time.Sleep(time.Minute) })
}

// sleep lets time pass in which nobody is there.
func (w *world) sleep(d time.Duration) {
	if w.watcher != nil {
		w.watcher.Close()
	}
	time.Sleep(d)
	w.watcher = new(line.Line).Connect(w.t, w.node)
}

// episode lets callers and schedulers work while things go wrong.
func (w *world) episode(more []*order) {
	w.during(func() {
		ctx, end := context.WithTimeout(w.t.Context(), busy)
		defer end()
		var all sync.WaitGroup
		act := func(as func(context.Context, *order, *rand.Rand), o *order) {
			rnd := o.random()
			all.Go(func() { as(ctx, o, rnd) })
		}
		for _, o := range more {
			act(w.place, o)
		}
		for _, o := range w.orders {
			act(w.withdraw, o)
			act(w.hurry, o)
		}
		rnd := w.random()
		all.Go(func() { w.trouble(ctx, rnd) })
		all.Wait()
	})
	w.looking(func() { time.Sleep(quiet) })
}

// during runs all hosts while f does, and reads the outbox until they have ended.
func (w *world) during(f func()) {
	ctx, end := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, h := range w.hosts {
		all.Go(func() { h.live(ctx) })
	}
	w.looking(func() {
		f()
		end()
		all.Wait() // that takes some as long as a statement may
	})
}

// looking reads the outbox every five seconds while f runs, or as often as tailed
// needs, and then once more: when a row was first seen is when it turned up.
func (w *world) looking(f func()) {
	ctx, end := context.WithCancel(w.t.Context())
	var looker sync.WaitGroup
	every := 5 * time.Second
	if w.tailed > 0 {
		every = w.tailed / 4
	}
	looker.Go(func() {
		for ctx.Err() == nil {
			w.look()
			_ = retry.Wait(ctx, every)
		}
	})
	f()
	end()
	looker.Wait()
	w.look()
}

// close ends everything; a bubble must be empty at its end.
func (w *world) close() {
	w.look()
	w.leftovers()
	w.watcher.Close()
	if err := w.node.Close(); err != nil {
		w.t.Error(err)
	}
	time.Sleep(2 * time.Minute) // the driver's timers
}

func (w *world) String() string {
	return fmt.Sprintf("%d messages, %d deaths, clocks up to %s ahead of the database's", len(w.orders), w.deaths.Load(), w.ahead)
}
