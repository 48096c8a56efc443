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
	ClassTooLarge     = "record_too_large"  // the record is larger than the topic or the broker allows
	ClassTopicRefused = "topic_not_allowed" // the topic has no valid name, or may not be written to or created
	ClassUndecodable  = "undecodable"       // the row is no event
	ClassRefused      = "refused"           // the broker refused the record for another reason
	ClassBehind       = "behind"            // an earlier event of the aggregate is a dead letter
	ClassInterrupted  = "interrupted"       // a relay before this one began to make it a dead letter and did not end
)

// death says why an event becomes a dead letter.
type death struct {
	class string
	err   error
}

// letters are the dead letters of the table that are not settled, as chains: an
// aggregate's, in their order, or a single one that nothing waits for. The
// publisher's lock guards them.
type letters struct {
	store *dlq.Store
	table string

	chains map[gocql.UUID]*chain // by aggregate; by event id if nothing waits for the letter
	known  map[gocql.UUID]letterKey
	// begun are the events of which a relay before this one began to make dead letters
	// (interrupted).
	begun  map[gocql.UUID]struct{}
	due    dueChains                 // those that time alone keeps from being replayed
	groups map[groupKey]*letterGroup // of equal errors under one rule
	gated  map[*letterGroup]struct{} // those with chains that are due and wait
	counts map[string]int            // letters by the strategy that they wait under
	rules  *dlq.StrategyRules
	// spilled are the letters that an open breaker or used-up attempts made.
	spilled int
	// writing is how many are being written, strict how many chains hold back an
	// aggregate, underWay how many are being replayed.
	writing, strict, underWay int
	// died is when the last event without a number became a dead letter.
	died time.Time
	// passed is up to which write time, in microseconds, the sweep has read the log.
	passed int64
}

type letterKey struct {
	chain gocql.UUID
	spill bool
}

// chain is dead letters that leave one after the other.
type chain struct {
	key      gocql.UUID
	letters  []letterRef
	draining bool // a replayer is at it
	strict   bool // later events of the aggregate wait behind it
	place    int  // among those that are due, -1 outside
	// gate is the group in which it waits though it is due.
	gate *letterGroup
}

// letterRef is what is kept in memory of a dead letter.
type letterRef struct {
	id  gocql.UUID
	seq int64
	// at is the time of the next replay in milliseconds, or one of the values below.
	at    int64
	group *letterGroup // nil for one that follows another
	asked bool         // an operator wants it now, whatever its strategy
	// after is a write time in microseconds, 0 for none: the replay waits until the
	// sweep has read up to there, because events before this one may be no dead
	// letters and may still be to come.
	after int64
}

const (
	atOperator int64 = -1 // when an operator says so
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

// on says that there is a table for dead letters.
func (d *letters) on() bool { return d.store != nil }

// has says that the event is a dead letter.
func (d *letters) has(id gocql.UUID) bool {
	_, ok := d.known[id]
	return ok
}

// IsDeadLetter says that the event is a dead letter that is not settled.
func (p *Publisher) IsDeadLetter(event gocql.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.has(event)
}

// WaitingUnder is how many dead letters wait under a strategy.
func (p *Publisher) WaitingUnder(strategy string) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.counts[strategy]
}

// blocks says that events of the aggregate wait behind a dead letter.
func (d *letters) blocks(aggregate gocql.UUID) bool {
	c, ok := d.chains[aggregate]
	return ok && c.strict
}

// add notes a letter; the letters of a chain stand by their numbers.
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

// remove forgets a letter that is settled, and its chain with the last one.
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

// head is the front of the chain.
func (c *chain) head() *letterRef { return &c.letters[0] }

// isDue says whether the chain's head is to be replayed now; if not, in is when,
// 0 if time alone does not decide.
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

// notBefore puts a replay off to the event's delivery time: one that waits for
// it would keep others from being replayed.
func notBefore(at int64, deliver time.Time) int64 {
	if at == atOperator || deliver.IsZero() || !deliver.After(time.Now()) {
		return at
	}
	return max(at, deliver.UnixMilli())
}

// ref returns the letter and its chain, nil if it is none.
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

// set changes when a letter is replayed.
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

// loosen takes a letter out of its chain: the others wait for it no longer.
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

// touch puts a chain whose head changed where it belongs.
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

// count counts a letter in or out.
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

// dueChains is a heap, the chain that is due first in front.
type dueChains []*chain

func (q dueChains) Len() int           { return len(q) }
func (q dueChains) Less(i, j int) bool { return q[i].head().at < q[j].head().at }
func (q dueChains) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is for package heap.
func (q *dueChains) Push(x any) {
	c := x.(*chain)
	c.place = len(*q)
	*q = append(*q, c)
}

// Pop is for package heap.
func (q *dueChains) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	c.place = -1
	return c
}

// DeadLetter reads the dead letter of an event of the table, nil if there is none.
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
