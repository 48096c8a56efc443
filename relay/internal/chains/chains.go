package chains

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Set contains the open dead letters of the table as chains. A chain contains the
// dead letters of an aggregate in order, or a single one that blocks no events. It is not
// safe for concurrent use.
type Set struct {
	chains map[gocql.UUID]*Chain // by aggregate; by event id if the dead letter blocks no events
	known  map[gocql.UUID]deadLetterKey
	due    chainHeap           // chains that wait for the time of a replay, by that time
	ready  chainHeap           // chains whose time has come, by priority and age
	groups map[GroupKey]*Group // by rule and error
	gated  map[*Group]struct{} // groups in which due chains wait
	counts map[string]int      // number of dead letters by strategy
	rules  *dlq.StrategyRules
	// spilled is the number of dead letters with the cause open breaker or used-up attempts,
	// blocked the number of aggregates with a blocked event.
	spilled, blocked int
}

type deadLetterKey struct {
	chain gocql.UUID
	spill bool
}

// Chain is a list of dead letters that are replayed one after the other.
type Chain struct {
	Key         gocql.UUID
	Aggregate   outbox.ID // or the id of its event, if it does not block others
	DeadLetters []Ref
	Draining    bool       // a replay is in progress
	Strict      bool       // it blocks later events of the aggregate
	in          *chainHeap // Set.due or Set.ready, nil outside
	place       int        // index in it
	// gate is the group in which it waits although it is due.
	gate *Group
}

// Ref is the part of a dead letter that is kept in memory.
type Ref struct {
	ID  gocql.UUID
	Seq int64
	// At is the time of the next replay in milliseconds, or AtOperator, AtBreaker or AtOnce.
	At    int64
	Group *Group // nil for a blocked event
	Asked bool   // an operator requested a replay now, regardless of the strategy
	// Priority and First, the time of the first failure in milliseconds, order the chains that
	// are due.
	Priority int8
	First    int64
	// After is a write time in microseconds, 0 for none. The replay waits until the sweep
	// reader has read up to it, because earlier events that are not dead letters may
	// still be unpublished.
	After int64
}

// Values of Ref.At.
const (
	AtOperator int64 = -1 // when an operator requests it
	AtBreaker  int64 = -2 // when the breaker is not open
	AtOnce     int64 = 0
)

// New returns an empty set. The rules select the strategy of each dead letter.
func New(rules *dlq.StrategyRules) *Set {
	return &Set{
		due: chainHeap{less: sooner}, ready: chainHeap{less: before},
		rules: rules, chains: make(map[gocql.UUID]*Chain), known: make(map[gocql.UUID]deadLetterKey),
		groups: make(map[GroupKey]*Group), gated: make(map[*Group]struct{}), counts: make(map[string]int),
	}
}

// Size returns the number of dead letters, of chains, and of aggregates with a blocked event:
// a dead letter that waits behind another one of its aggregate.
func (d *Set) Size() (deadLetters, chains, blocked int) {
	return len(d.known), len(d.chains), d.blocked
}

// Spilled returns the number of dead letters that count for the spill limit.
func (d *Set) Spilled() int { return d.spilled }

// Waiting returns the number of dead letters that wait under a strategy.
func (d *Set) Waiting(strategy string) int { return d.counts[strategy] }

// Of returns the chain with the key, nil if there is none.
func (d *Set) Of(key gocql.UUID) *Chain { return d.chains[key] }

// IsSpill reports whether the open dead letter has the cause open breaker or used-up
// attempts.
func (d *Set) IsSpill(id gocql.UUID) bool { return d.known[id].spill }

// Front returns the chain to replay next: of the chains that are due at now one that an operator
// requested, else that with the highest priority and of these with the earliest first failure; or,
// if none is due, the one that is due first. It returns nil if no chain waits for a time.
func (d *Set) Front(now time.Time) *Chain {
	for len(d.due.list) > 0 && d.due.list[0].Head().At <= now.UnixMilli() {
		d.ready.push(d.due.list[0])
	}
	switch {
	case len(d.ready.list) > 0:
		return d.ready.list[0]
	case len(d.due.list) > 0:
		return d.due.list[0]
	}
	return nil
}

// Hold makes a chain that is due wait in a group.
func (d *Set) Hold(c *Chain, g *Group) {
	c.leave()
	g.enter(d, c)
}

// Gates returns the groups in which due chains wait.
func (d *Set) Gates() iter.Seq[*Group] { return maps.Keys(d.gated) }

// Has reports whether the event is an open dead letter.
func (d *Set) Has(id gocql.UUID) bool {
	_, ok := d.known[id]
	return ok
}

// Blocks reports whether a dead letter blocks the aggregate.
func (d *Set) Blocks(aggregate gocql.UUID) bool {
	c, ok := d.chains[aggregate]
	return ok && c.Strict
}

// BlocksEvent reports whether a dead letter of the aggregate has to be published before
// its event with the number; 0 is an event without a number, which follows all.
func (d *Set) BlocksEvent(aggregate gocql.UUID, seq int64) bool {
	c, ok := d.chains[aggregate]
	return ok && c.Strict && (seq == 0 || c.Head().Seq <= seq)
}

// Add adds a dead letter to its chain, in the order of sequence numbers. The chain is that of the
// aggregate, or, if it does not block others, of its event.
func (d *Set) Add(aggregate outbox.ID, strict bool, ref Ref, spill bool) {
	if d.Has(ref.ID) {
		return
	}
	key := aggregate.UUID()
	c, ok := d.chains[key]
	if !ok {
		c = &Chain{Key: key, Aggregate: aggregate, Strict: strict}
		d.chains[key] = c
	}
	i := len(c.DeadLetters)
	if ref.Seq > 0 && i > 0 && c.DeadLetters[i-1].Seq > ref.Seq {
		i, _ = slices.BinarySearchFunc(c.DeadLetters, ref.Seq, func(r Ref, seq int64) int { return cmp.Compare(r.Seq, seq) })
	}
	c.DeadLetters = slices.Insert(c.DeadLetters, i, ref)
	if c.Strict && len(c.DeadLetters) == 2 {
		d.blocked++
	}
	d.known[ref.ID] = deadLetterKey{chain: key, spill: spill}
	d.count(&ref, 1)
	if spill {
		d.spilled++
	}
	if i == 0 {
		d.Touch(c)
	}
}

// ClearAfter clears After of a dead letter of the chain, and of its successors without a gap:
// the events before it are published, which are also the events before them.
func (c *Chain) ClearAfter(id gocql.UUID) {
	next := int64(0)
	for i := range c.DeadLetters {
		ref := &c.DeadLetters[i]
		switch {
		case ref.ID == id, next > 0 && ref.Seq == next:
			ref.After, next = 0, ref.Seq+1
		case next > 0:
			return
		}
	}
}

// Remove removes a dead letter, and its chain if it was the last one.
func (d *Set) Remove(id gocql.UUID) {
	k, ok := d.known[id]
	if !ok {
		return
	}
	delete(d.known, id)
	if k.spill {
		d.spilled--
	}
	c := d.chains[k.chain]
	i := slices.IndexFunc(c.DeadLetters, func(r Ref) bool { return r.ID == id })
	d.count(&c.DeadLetters[i], -1)
	c.DeadLetters = slices.Delete(c.DeadLetters, i, i+1)
	switch {
	case len(c.DeadLetters) == 0:
		delete(d.chains, k.chain)
	case c.Strict && len(c.DeadLetters) == 1:
		d.blocked--
	}
	if i == 0 {
		d.Touch(c)
	}
}

// Head returns the first dead letter of the chain.
func (c *Chain) Head() *Ref { return &c.DeadLetters[0] }

// Queued reports whether the chain waits for a time; a draining chain does not.
func (c *Chain) Queued() bool { return c.in != nil }

// IsDue reports whether the chain's head is due for a replay. If not, in is the time
// until then, or 0 if the replay needs an operator. The breaker is not open.
func (c *Chain) IsDue(now time.Time) (yes bool, in time.Duration) {
	switch at := c.Head().At; {
	case at == AtOperator:
		return false, 0
	case at == AtBreaker, at <= now.UnixMilli():
		return true, 0
	default:
		return false, time.Duration(at-now.UnixMilli()) * time.Millisecond
	}
}

// DueAt returns Ref.At for a strategy and the time of the next replay, zero for none.
func DueAt(strategy string, next time.Time) int64 {
	switch {
	case strategy == dlq.StrategyBreakerClose:
		return AtBreaker
	case strategy == dlq.StrategyFollow:
		return AtOnce
	case next.IsZero():
		return AtOperator
	default:
		return next.UnixMilli()
	}
}

// Ref returns the dead letter and its chain, or nil if the event is no open dead letter.
func (d *Set) Ref(id gocql.UUID) (*Ref, *Chain) {
	k, ok := d.known[id]
	if !ok {
		return nil, nil
	}
	c := d.chains[k.chain]
	for i := range c.DeadLetters {
		if c.DeadLetters[i].ID == id {
			return &c.DeadLetters[i], c
		}
	}
	return nil, nil
}

// Change applies change to a dead letter and updates counts and queues.
func (d *Set) Change(id gocql.UUID, change func(*Ref)) {
	ref, c := d.Ref(id)
	if ref == nil {
		return
	}
	d.count(ref, -1)
	change(ref)
	d.count(ref, 1)
	if ref == c.Head() {
		d.Touch(c)
	}
}

// Loosen moves a dead letter into a chain of its own, so that it blocks no other event.
func (d *Set) Loosen(id gocql.UUID, at int64) {
	ref, _ := d.Ref(id)
	k := d.known[id]
	if ref == nil || k.chain == id {
		return
	}
	alone := *ref
	alone.At = at
	d.Remove(id)
	d.Add(outbox.IDFromUUID(id), false, alone, k.spill)
}

// Touch updates the position of a chain whose head changed: it leaves its group and
// waits for its time again, or leaves the heaps.
func (d *Set) Touch(c *Chain) {
	if c.gate != nil {
		c.gate.leave(d, c)
	}
	c.leave()
	if !c.Draining && len(c.DeadLetters) > 0 && c.Head().At != AtOperator {
		d.due.push(c)
	}
}

// count adds by to the counts of the dead letter's strategy and group.
func (d *Set) count(ref *Ref, by int) {
	strategy := dlq.StrategyFollow
	if ref.Group != nil {
		strategy = ref.Group.strategy
		if ref.Group.DeadLetters += by; ref.Group.DeadLetters == 0 && ref.Group.underWay == 0 {
			delete(d.groups, ref.Group.GroupKey)
		} else {
			d.groups[ref.Group.GroupKey] = ref.Group
		}
	}
	if ref.At == AtOperator {
		strategy = dlq.StrategyManual
	}
	d.counts[strategy] += by
}

// chainHeap is a heap of chains. A chain is in one at a time.
type chainHeap struct {
	list []*Chain
	less func(a, b *Ref) bool // of their heads
}

// sooner orders heads by the time of their next replay.
func sooner(a, b *Ref) bool { return a.At < b.At }

// before orders heads whose time has come.
func before(a, b *Ref) bool {
	if a.Asked != b.Asked {
		return a.Asked
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.First, b.First)) < 0
}

// push moves a chain into the heap.
func (q *chainHeap) push(c *Chain) {
	c.leave()
	heap.Push(q, c)
}

// leave removes the chain from its heap, if it is in one.
func (c *Chain) leave() {
	if c.in != nil {
		heap.Remove(c.in, c.place)
	}
}

// Len implements heap.Interface, as the methods below.
func (q *chainHeap) Len() int           { return len(q.list) }
func (q *chainHeap) Less(i, j int) bool { return q.less(q.list[i].Head(), q.list[j].Head()) }
func (q *chainHeap) Swap(i, j int) {
	q.list[i], q.list[j] = q.list[j], q.list[i]
	q.list[i].place, q.list[j].place = i, j
}

// Push implements heap.Interface.
func (q *chainHeap) Push(x any) {
	c := x.(*Chain)
	c.in, c.place = q, len(q.list)
	q.list = append(q.list, c)
}

// Pop implements heap.Interface.
func (q *chainHeap) Pop() any {
	last := len(q.list) - 1
	c := q.list[last]
	q.list[last] = nil
	q.list = q.list[:last]
	c.in = nil
	return c
}
