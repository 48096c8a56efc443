package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// planned is how long things may go wrong.
const planned = 2 * time.Hour

// plan is what goes wrong when, by a seed.
type plan struct {
	rnd      *rand.Rand
	tablets  bool
	tail     bool
	readBack bool
	inFlight int
	skews    []time.Duration
	episodes []episode
}

// episode is something that goes wrong for a while.
type episode struct {
	kind     *kind
	from, to time.Duration
	begin    func(*world) (end func())
}

// kind is a way in which things go wrong.
type kind struct {
	name      string
	most      time.Duration // how long it lasts at most
	begin     func(r *rand.Rand, w *world) (end func())
	excluding []string // what it must not meet
}

// What must not meet is what would break what the system rests on: rows turn up
// within the confidence window.
//
//   - A conditional write that is decided and invisible shows when its writer
//     asks again, so the database must be there for that, and a new generation
//     would block it for good.
//   - A replay of a batch is due a minute after it was sent, so the sending must
//     not take a minute too.
var kinds = []*kind{
	{"broker gone", 40 * time.Minute, func(_ *rand.Rand, w *world) func() {
		w.net.cut(broker)
		return func() { w.net.mend(broker) }
	}, []string{"broker gone"}},
	{"broker frozen", 20 * time.Minute, func(_ *rand.Rand, w *world) func() {
		w.kafka.freeze()
		return w.kafka.unfreeze
	}, []string{"broker frozen"}},
	{"broker cut off now and then", 20 * time.Minute, func(r *rand.Rand, w *world) func() {
		for range 10 {
			time.Sleep(time.Duration(r.Int64N(int64(2 * time.Minute))))
			if !w.net.isAway(broker) {
				w.net.cut(broker)
				w.net.mend(broker)
			}
		}
		return func() {}
	}, nil},
	{"database gone", 40 * time.Minute, func(_ *rand.Rand, w *world) func() {
		w.net.cut(database)
		return func() { w.net.mend(database) }
	}, []string{"database gone", "database frozen", "conditional writes fail"}},
	{"database frozen", 40 * time.Second, func(_ *rand.Rand, w *world) func() {
		w.faults().Freeze()
		return w.faults().Thaw
	}, []string{"database gone", "database frozen", "conditional writes fail", "batches fail", "reads fail", "relay restarts", "relay crashes"}},
	{"batches fail", time.Hour, func(r *rand.Rand, w *world) func() {
		return w.failBatches(0.04 * r.Float64())
	}, []string{"database frozen", "batches fail"}},
	{"conditional writes fail", time.Hour, func(r *rand.Rand, w *world) func() {
		return w.failCAS(0.1 * r.Float64())
	}, []string{"database gone", "database frozen", "conditional writes fail", "new streams"}},
	{"reads fail", time.Hour, func(r *rand.Rand, w *world) func() {
		return w.failReads(0.3 * r.Float64())
	}, []string{"database frozen"}},
	{"new streams", 0, func(r *rand.Rand, w *world) func() {
		if w.settings.node.Tablets {
			n, err := w.faults().Node().Tablets(keyspace, events)
			if err != nil {
				w.t.Error(err)
			}
			w.resize(n > 1 && r.IntN(2) == 0)
		} else {
			w.newGeneration(r.IntN(4))
		}
		return func() {}
	}, []string{"new streams", "conditional writes fail"}},
	{"relay restarts", 20 * time.Minute, func(_ *rand.Rand, w *world) func() {
		if !w.relayRuns() {
			return func() {}
		}
		w.stopRelay()
		return w.launchRelay
	}, []string{"relay restarts", "relay crashes", "database frozen"}},
	{"relay crashes", 20 * time.Minute, func(r *rand.Rand, w *world) func() {
		if !w.relayRuns() {
			return func() {}
		}
		switch r.IntN(3) {
		case 0:
			w.crashRelay()
		case 1:
			w.crashWhen(w.kafka.onProduce, 1+r.IntN(20), 5*time.Minute)
		case 2:
			w.crashWhen(w.saves.onEach, 1+r.IntN(20), 5*time.Minute)
		}
		return w.launchRelay
	}, []string{"relay restarts", "relay crashes", "database frozen"}},
}

func newPlan(seed uint64) *plan {
	p := &plan{rnd: rand.New(rand.NewPCG(seed, 'p'))}
	p.tablets = p.rnd.IntN(3) == 0
	p.tail, p.readBack = p.rnd.IntN(4) > 0, p.rnd.IntN(4) > 0
	p.inFlight = 5 + p.rnd.IntN(200)
	for range 1 + p.rnd.IntN(3) {
		p.skews = append(p.skews, time.Duration(p.rnd.Int64N(int64(24*time.Second)))-20*time.Second)
	}
	for range 5 + p.rnd.IntN(15) {
		k := kinds[p.rnd.IntN(len(kinds))]
		e := episode{kind: k, from: time.Duration(p.rnd.Int64N(int64(planned - k.most)))}
		// Mostly short, so that many can meet.
		e.to = e.from + time.Duration(float64(k.most)*p.rnd.Float64()*p.rnd.Float64())
		r := rand.New(rand.NewPCG(p.rnd.Uint64(), 0))
		e.begin = func(w *world) func() { return k.begin(r, w) }
		if !slices.ContainsFunc(p.episodes, e.collides) {
			p.episodes = append(p.episodes, e)
		}
	}
	slices.SortFunc(p.episodes, func(a, b episode) int { return int(a.from - b.from) })
	return p
}

// collides says that two must not be in the same plan.
func (e episode) collides(o episode) bool {
	const apart = 3 * time.Minute
	return slices.Contains(e.kind.excluding, o.kind.name) && e.from < o.to+apart && o.from < e.to+apart
}

// String lists what will happen.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tablets %t, tail %t, read-back %t, at most %d in flight, clocks of the order services off by %v\n",
		p.tablets, p.tail, p.readBack, p.inFlight, p.skews)
	for _, e := range p.episodes {
		fmt.Fprintf(&b, "%12s to %12s  %s\n", e.from.Round(time.Millisecond), e.to.Round(time.Millisecond), e.kind.name)
	}
	return b.String()
}

func (p *plan) settings(s *settings) {
	if p.tablets {
		onTablets(s)
	}
	if !p.tail {
		s.relay.Tail = relay.TailOff
	}
	if !p.readBack {
		s.relay.ReadBackMargin = -1
	}
	s.relay.MaxInFlightRecords, s.relay.MaxStreamBacklog = p.inFlight, 5+p.rnd.IntN(200)
	s.skews = p.skews
}

// carryOut lets it all happen, each thing as soon as those before it allow.
func (p *plan) carryOut(w *world) {
	type change struct {
		at time.Duration
		do func()
	}
	var changes []change
	for _, e := range p.episodes {
		var end func()
		changes = append(changes,
			change{e.from, func() { end = e.begin(w) }},
			change{e.to, func() { end() }})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return int(a.at - b.at) })
	began := time.Now()
	for _, c := range changes {
		time.Sleep(time.Until(began.Add(c.at)))
		c.do()
	}
}
