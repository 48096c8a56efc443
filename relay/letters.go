package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// Error classes of dead letters.
const (
	classBreakerOpen  = "breaker_open"      // the breaker was open
	classAttemptsUsed = "attempts_used"     // no attempt succeeded
	classTooLarge     = "record_too_large"  // the record is larger than the topic or the broker allows
	classTopicRefused = "topic_not_allowed" // the topic has no valid name, or may not be made
	classUndecodable  = "undecodable"       // the row is no event
	classRefused      = "refused"           // the broker refused the record for another reason
	classBehind       = "behind"            // an earlier event of the aggregate is a dead letter
)

// Strategies of dead letters: when the relay replays one by itself.
const (
	strategyBreaker   = "breaker_close"       // as soon as the breaker lets something through
	strategyImmediate = dlq.StrategyImmediate // after 1, 5, 15, 30 and 60 minutes
	strategyManual    = dlq.StrategyManual    // when an operator says so
	strategyFollow    = "follow"              // when the dead letter before it is settled
)

// death says why an event becomes a dead letter.
type death struct {
	class string
	err   error
}

func strategyOf(class string) string {
	switch class {
	case classBreakerOpen:
		return strategyBreaker
	case classAttemptsUsed:
		return strategyImmediate
	case classBehind:
		return strategyFollow
	default:
		return strategyManual
	}
}

// nextReplay is when a dead letter of the strategy is replayed after so many
// replays, zero if time alone does not decide.
func nextReplay(strategy string, replays int, now time.Time) time.Time {
	if strategy != strategyImmediate || replays >= len(dlq.DefaultDelays) {
		return time.Time{}
	}
	return now.Add(dlq.Delay(replays)).UTC().Truncate(time.Millisecond)
}

// letters are the dead letters of the table that are not settled, as chains: an
// aggregate's, in their order, or a single one that nothing waits for. The
// publisher's lock guards them.
type letters struct {
	store *dlq.Store
	table string

	chains map[gocql.UUID]*chain // by aggregate; by event id if nothing waits for the letter
	known  map[gocql.UUID]letterKey
	// spilled are the letters that an open breaker or used-up attempts made.
	spilled int
	// writing is how many are being written, strict how many chains hold back an aggregate.
	writing, strict int
	// died is when the last event without a number became a dead letter.
	died time.Time
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
}

// letterRef is what is kept in memory of a dead letter.
type letterRef struct {
	id  gocql.UUID
	seq int64
	// at is the time of the next replay in milliseconds, or one of the values below.
	at int64
}

const (
	atOperator int64 = -1 // when an operator says so
	atBreaker  int64 = -2 // when the breaker is not open
	atOnce     int64 = 0
)

func newLetters(cfg *Config) *letters {
	return &letters{
		store: cfg.letters, table: cfg.TableKeyspace + "." + cfg.Table,
		chains: make(map[gocql.UUID]*chain), known: make(map[gocql.UUID]letterKey),
	}
}

// on says that there is a table for dead letters.
func (d *letters) on() bool { return d.store != nil }

// has says that the event is a dead letter.
func (d *letters) has(id gocql.UUID) bool {
	_, ok := d.known[id]
	return ok
}

// isLetter says that the event is a dead letter that is not settled.
func (p *publisher) isLetter(event gocql.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.has(event)
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
		c = &chain{key: key, strict: strict}
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
	if spill {
		d.spilled++
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
	c.letters = slices.DeleteFunc(c.letters, func(r letterRef) bool { return r.id == id })
	if len(c.letters) == 0 {
		delete(d.chains, k.chain)
		if c.strict {
			d.strict--
		}
	}
}

// head is the front of the chain.
func (c *chain) head() *letterRef { return &c.letters[0] }

// due says whether the chain's head is to be replayed now; if not, in is when,
// 0 if time alone does not decide.
func (c *chain) due(now time.Time, breaker BreakerState) (yes bool, in time.Duration) {
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
	case strategy == strategyBreaker:
		return atBreaker
	case strategy == strategyFollow:
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

// ref returns the letter, nil if it is none.
func (d *letters) ref(id gocql.UUID) *letterRef {
	k, ok := d.known[id]
	if !ok {
		return nil
	}
	c := d.chains[k.chain]
	for i := range c.letters {
		if c.letters[i].id == id {
			return &c.letters[i]
		}
	}
	return nil
}

// loosen takes a letter out of its chain: the others wait for it no longer.
func (d *letters) loosen(id gocql.UUID, at int64) {
	ref, k := d.ref(id), d.known[id]
	if ref == nil || k.chain == id {
		return
	}
	alone := *ref
	alone.at = at
	d.remove(id)
	d.add(id, false, alone, k.spill)
}
