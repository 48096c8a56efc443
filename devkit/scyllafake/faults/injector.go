package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// ErrNoRule is returned for the id of an unknown rule.
var ErrNoRule = errors.New("no such rule")

// Injector decides the fate of operations by its rules. It is an engine.Hook,
// and safe for concurrent use.
type Injector struct {
	node  *Node
	clock *Clock
	next  engine.Hook // of the operations that pass; may be nil

	// idle means that there are no faults, so that a node without faults takes no lock.
	idle atomic.Bool

	mu     sync.Mutex
	rnd    *rand.Rand
	rules  []*active
	ended  map[int]int // hits of the rules that were removed, by id
	nextID int
	frozen bool
	thaw   chan struct{} // closed by Thaw
}

// active is a rule with its counts.
type active struct {
	id            int
	rule          Rule
	matched, hits int
}

// New returns an Injector without rules for a node. Seed seeds its random choices;
// equal seeds and operations give equal faults. node may be nil for an Injector whose
// rules neither begin generations nor resize tablets, clock for one without skew. next, unless
// nil, decides the fate of the operations that pass.
func New(node *Node, clock *Clock, seed uint64, next engine.Hook) *Injector {
	in := &Injector{
		node: node, clock: clock, next: next,
		rnd: rand.New(rand.NewPCG(seed, 0)), ended: make(map[int]int), nextID: 1, thaw: make(chan struct{}),
	}
	in.idle.Store(true)
	return in
}

// updateIdle updates idle. The caller holds mu.
func (in *Injector) updateIdle() { in.idle.Store(len(in.rules) == 0 && !in.frozen) }

// Node returns the node whose generations and tablets can be changed.
func (in *Injector) Node() *Node { return in.node }

// Clock returns the node's clock.
func (in *Injector) Clock() *Clock { return in.clock }

// Add adds a rule after the existing ones and returns its id. Of several rules that
// match an operation, the first one hits it. The error reports every problem of the
// rule.
func (in *Injector) Add(r Rule) (id int, err error) {
	if err := r.validate(); err != nil {
		return 0, err
	}
	if in.node == nil && (r.Effect.Generation != nil || r.Effect.Resize != nil) {
		return 0, errors.New("generations and tablets cannot be changed here")
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	id = in.nextID
	in.nextID++
	in.rules = append(in.rules, &active{id: id, rule: r})
	in.updateIdle()
	return id, nil
}

// MustAdd is Add for rules fixed in the code; it panics on an invalid one.
func (in *Injector) MustAdd(r Rule) (id int) {
	id, err := in.Add(r)
	if err != nil {
		panic(fmt.Sprintf("faults: rule %q: %v", r.Name, err))
	}
	return id
}

// Remove removes a rule; ErrNoRule if it does not exist.
func (in *Injector) Remove(id int) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.rules)
	in.rules = slices.DeleteFunc(in.rules, func(a *active) bool {
		if a.id == id {
			in.ended[id] = a.hits
		}
		return a.id == id
	})
	in.updateIdle()
	if len(in.rules) == n {
		return fmt.Errorf("rule %d: %w", id, ErrNoRule)
	}
	return nil
}

// Clear removes all rules and thaws frozen operations. The clock stays skewed.
func (in *Injector) Clear() {
	in.mu.Lock()
	in.rules = nil
	clear(in.ended)
	in.updateIdle()
	in.mu.Unlock()
	in.Thaw()
}

func (a *active) spent() bool { return a.rule.Count > 0 && a.hits >= a.rule.Count }

// Hits returns how many operations a rule has hit, until it was removed; 0 for an unknown one.
func (in *Injector) Hits(id int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.rules {
		if a.id == id {
			return a.hits
		}
	}
	return in.ended[id]
}

// Freeze holds every operation from now on, as a node stopped by SIGSTOP does:
// connections stay open and there are no responses.
func (in *Injector) Freeze() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frozen = true
	in.updateIdle()
}

// Thaw releases all operations held by Freeze or by rules. The rules stay.
func (in *Injector) Thaw() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.frozen = false
	in.updateIdle()
	close(in.thaw)
	in.thaw = make(chan struct{})
}

// Before implements engine.Hook.
func (in *Injector) Before(ctx context.Context, op engine.Op) engine.Verdict {
	v := in.before(ctx, op)
	if in.next == nil || v.Delay != 0 || v.Err != nil || v.Disconnect || v.DeadPage || v.Fate != engine.FateNormal {
		return v
	}
	return in.next.Before(ctx, op)
}

func (in *Injector) before(ctx context.Context, op engine.Op) engine.Verdict {
	if in.idle.Load() {
		return engine.Verdict{}
	}
	effect, verdict, wait := in.decide(op)
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return engine.Verdict{Disconnect: true}
		}
	}
	if effect == nil {
		return verdict
	}
	if g := effect.Generation; g != nil {
		if _, err := in.node.NewGeneration(*g); err != nil {
			return engine.Verdict{Err: cqlerr.New(cqlerr.Server, "fault: %v", err)}
		}
	}
	if r := effect.Resize; r != nil {
		if _, err := in.node.Resize(*r); err != nil {
			return engine.Verdict{Err: cqlerr.New(cqlerr.Server, "fault: %v", err)}
		}
	}
	return verdict
}

// decide finds the rule that hits an operation. wait is closed when the operation may
// continue; effect is nil when no rule hits.
func (in *Injector) decide(op engine.Op) (effect *Effect, v engine.Verdict, wait <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.frozen {
		wait = in.thaw
	}
	for _, a := range in.rules {
		if a.spent() || !a.rule.Match.matches(op) {
			continue
		}
		a.matched++
		if a.matched <= a.rule.Skip || a.rule.Probability > 0 && in.rnd.Float64() >= a.rule.Probability {
			continue
		}
		e := &a.rule.Effect
		if e.Decide != nil {
			var ok bool
			if v, ok = e.Decide(op); !ok {
				continue
			}
		} else {
			v = e.verdict(op, in.node.batchlog())
		}
		a.hits++
		if e.Freeze {
			wait = in.thaw
		}
		return e, v, wait
	}
	return nil, engine.Verdict{}, wait
}

func (e *Effect) verdict(op engine.Op, batchlog string) engine.Verdict {
	v := engine.Verdict{Delay: e.Delay, Fate: e.Fate, Later: e.Later, Disconnect: e.Disconnect}
	if e.Failure != nil {
		v.Err = e.Failure.error(op, batchlog)
	}
	return v
}
