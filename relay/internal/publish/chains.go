package publish

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Error classes of dead letters.
const (
	ClassBreakerOpen  = "breaker_open"      // the breaker was open
	ClassAttemptsUsed = "attempts_used"     // no attempt succeeded
	ClassTooLarge     = "record_too_large"  // the record exceeds the limit of the topic or the broker
	ClassTopicRefused = "topic_not_allowed" // invalid topic name, or no permission to write to or create the topic
	ClassUndecodable  = "undecodable"       // the row cannot be decoded as an event
	ClassRefused      = "refused"           // the broker refused the record for another reason
	ClassBehind       = "behind"            // an earlier event of the aggregate is a dead letter
	ClassInterrupted  = "interrupted"       // a previous instance began to write a dead letter and did not finish
)

// death is the reason why an event becomes a dead letter.
type death struct {
	class string
	err   error
}

// letters contains the open dead letters of the table as chains. A chain contains the
// dead letters of an aggregate in order, or a single one that blocks no events.
// Publisher.mu guards it.
type letters struct {
	store *dlq.Store
	table string

	chains map[gocql.UUID]*chain // by aggregate; by event id if the dead letter blocks no events
	known  map[gocql.UUID]letterKey
	// begun contains the events for which a previous instance began to write a dead
	// letter (interrupted).
	begun  map[gocql.UUID]struct{}
	due    dueChains                 // chains that wait for a replay, except chains that need an operator
	groups map[groupKey]*letterGroup // by rule and error
	gated  map[*letterGroup]struct{} // groups in which due chains wait
	counts map[string]int            // number of dead letters by strategy
	rules  *dlq.StrategyRules
	// spilled is the number of dead letters with the cause open breaker or used-up attempts.
	spilled int
	// writing is the number of dead letters being written, strict the number of chains
	// that block an aggregate, underWay the number of running replays.
	writing, strict, underWay int
	// died is the failure time of the last dead letter without a sequence number.
	died time.Time
	// passed is the write time, in microseconds, up to which the sweep reader has read
	// the CDC log.
	passed int64
}

type letterKey struct {
	chain gocql.UUID
	spill bool
}

// chain is a list of dead letters that are replayed one after the other.
type chain struct {
	key      gocql.UUID
	letters  []letterRef
	draining bool // a replay is in progress
	strict   bool // it blocks later events of the aggregate
	place    int  // index in letters.due, -1 outside
	// gate is the group in which it waits although it is due.
	gate *letterGroup
}

// letterRef is the part of a dead letter that is kept in memory.
type letterRef struct {
	id  gocql.UUID
	seq int64
	// at is the time of the next replay in milliseconds, or one of the constants below.
	at    int64
	group *letterGroup // nil for a blocked event
	asked bool         // an operator requested a replay now, regardless of the strategy
	// after is a write time in microseconds, 0 for none. The replay waits until the sweep
	// reader has read up to it, because earlier events that are not dead letters may
	// still be unpublished.
	after int64
}

const (
	atOperator int64 = -1 // when an operator requests it
	atBreaker  int64 = -2 // when the breaker is not open
	atOnce     int64 = 0
)

func newLetters(cfg *Config) *letters {
	return &letters{
		store: cfg.DeadLetters, table: cfg.TableKeyspace + "." + cfg.Table, rules: cfg.Rules,
		chains: make(map[gocql.UUID]*chain), known: make(map[gocql.UUID]letterKey),
		groups: make(map[groupKey]*letterGroup), gated: make(map[*letterGroup]struct{}), counts: make(map[string]int),
	}
}

// on reports whether there is a table for dead letters.
func (d *letters) on() bool { return d.store != nil }

// has reports whether the event is an open dead letter.
func (d *letters) has(id gocql.UUID) bool {
	_, ok := d.known[id]
	return ok
}

// IsDeadLetter reports whether the event is an open dead letter.
func (p *Publisher) IsDeadLetter(event gocql.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.has(event)
}

// WaitingUnder returns the number of dead letters that wait under a strategy. p may be
// nil.
func (p *Publisher) WaitingUnder(strategy string) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.counts[strategy]
}

// blocks reports whether a dead letter blocks the aggregate.
func (d *letters) blocks(aggregate gocql.UUID) bool {
	c, ok := d.chains[aggregate]
	return ok && c.strict
}

// add adds a dead letter to its chain, in the order of sequence numbers.
func (d *letters) add(key gocql.UUID, strict bool, ref letterRef, spill bool) {
	if d.has(ref.id) {
		return
	}
	c, ok := d.chains[key]
	if !ok {
		c = &chain{key: key, strict: strict, place: -1}
		d.chains[key] = c
		if strict {
			d.strict++
		}
	}
	i := len(c.letters)
	if ref.seq > 0 && i > 0 && c.letters[i-1].seq > ref.seq {
		i, _ = slices.BinarySearchFunc(c.letters, ref.seq, func(r letterRef, seq int64) int { return cmp.Compare(r.seq, seq) })
	}
	c.letters = slices.Insert(c.letters, i, ref)
	d.known[ref.id] = letterKey{chain: key, spill: spill}
	d.count(&ref, 1)
	if spill {
		d.spilled++
	}
	if i == 0 {
		d.touch(c)
	}
}

// remove removes a dead letter, and its chain if it was the last one.
func (d *letters) remove(id gocql.UUID) {
	k, ok := d.known[id]
	if !ok {
		return
	}
	delete(d.known, id)
	if k.spill {
		d.spilled--
	}
	c := d.chains[k.chain]
	i := slices.IndexFunc(c.letters, func(r letterRef) bool { return r.id == id })
	d.count(&c.letters[i], -1)
	c.letters = slices.Delete(c.letters, i, i+1)
	if len(c.letters) == 0 {
		delete(d.chains, k.chain)
		if c.strict {
			d.strict--
		}
	}
	if i == 0 {
		d.touch(c)
	}
}

// head returns the first dead letter of the chain.
func (c *chain) head() *letterRef { return &c.letters[0] }

// isDue reports whether the chain's head is due for a replay. If not, in is the time
// until then, or 0 if the replay needs an operator or waits for the breaker.
func (c *chain) isDue(now time.Time, breaker BreakerState) (yes bool, in time.Duration) {
	switch at := c.head().at; {
	case at == atOperator:
		return false, 0
	case breaker == BreakerOpen:
		return false, 0
	case at == atBreaker, at <= now.UnixMilli():
		return true, 0
	default:
		return false, time.Duration(at-now.UnixMilli()) * time.Millisecond
	}
}

func atOf(strategy string, next time.Time) int64 {
	switch {
	case strategy == dlq.StrategyBreakerClose:
		return atBreaker
	case strategy == dlq.StrategyFollow:
		return atOnce
	case next.IsZero():
		return atOperator
	default:
		return next.UnixMilli()
	}
}

// notBefore delays a replay until the event's delivery time. A started replay that waits
// for it would delay other replays.
func notBefore(at int64, deliver time.Time) int64 {
	if at == atOperator || deliver.IsZero() || !deliver.After(time.Now()) {
		return at
	}
	return max(at, deliver.UnixMilli())
}

// ref returns the dead letter and its chain, or nil if the event is no open dead letter.
func (d *letters) ref(id gocql.UUID) (*letterRef, *chain) {
	k, ok := d.known[id]
	if !ok {
		return nil, nil
	}
	c := d.chains[k.chain]
	for i := range c.letters {
		if c.letters[i].id == id {
			return &c.letters[i], c
		}
	}
	return nil, nil
}

// set applies change to a dead letter and updates counts and queues.
func (d *letters) set(id gocql.UUID, change func(*letterRef)) {
	ref, c := d.ref(id)
	if ref == nil {
		return
	}
	d.count(ref, -1)
	change(ref)
	d.count(ref, 1)
	if ref == c.head() {
		d.touch(c)
	}
}

// loosen moves a dead letter into a chain of its own, so that it blocks no other event.
func (d *letters) loosen(id gocql.UUID, at int64) {
	ref, _ := d.ref(id)
	k := d.known[id]
	if ref == nil || k.chain == id {
		return
	}
	alone := *ref
	alone.at = at
	d.remove(id)
	d.add(id, false, alone, k.spill)
}

// touch updates the position of a chain whose head changed: it leaves its group and
// enters, moves in or leaves the due heap.
func (d *letters) touch(c *chain) {
	if c.gate != nil {
		c.gate.leave(d, c)
	}
	in := !c.draining && len(c.letters) > 0 && c.head().at != atOperator
	switch {
	case in && c.place < 0:
		heap.Push(&d.due, c)
	case in:
		heap.Fix(&d.due, c.place)
	case c.place >= 0:
		heap.Remove(&d.due, c.place)
	}
}

// count adds by to the counts of the dead letter's strategy and group.
func (d *letters) count(ref *letterRef, by int) {
	strategy := dlq.StrategyFollow
	if ref.group != nil {
		strategy = ref.group.strategy
		if ref.group.letters += by; ref.group.letters == 0 && ref.group.underWay == 0 {
			delete(d.groups, ref.group.groupKey)
		} else {
			d.groups[ref.group.groupKey] = ref.group
		}
	}
	if ref.at == atOperator {
		strategy = dlq.StrategyManual
	}
	d.counts[strategy] += by
}

// dueChains is a heap of chains by the due time of their heads.
type dueChains []*chain

func (q dueChains) Len() int           { return len(q) }
func (q dueChains) Less(i, j int) bool { return q[i].head().at < q[j].head().at }
func (q dueChains) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements heap.Interface.
func (q *dueChains) Push(x any) {
	c := x.(*chain)
	c.place = len(*q)
	*q = append(*q, c)
}

// Pop implements heap.Interface.
func (q *dueChains) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	c.place = -1
	return c
}

// DeadLetter reads the dead letter of an event of the table. It returns nil without an
// error if there is none.
func (p *Publisher) DeadLetter(ctx context.Context, event gocql.UUID) (*dlq.DeadLetter, error) {
	if !p.letters.on() {
		return nil, nil
	}
	l, err := p.letters.store.Read(ctx, event)
	if errors.Is(err, dlq.ErrNotFound) || err == nil && l.Table != p.letters.table {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}
