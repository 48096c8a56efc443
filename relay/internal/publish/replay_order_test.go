package publish

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Events after a record of the producer became dead letters. The record came back, and its
// event, 2, waits in the lane between the dead letters 1 and 3.
func TestReplayer_DeadLettersAroundAWaitingEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, deadLettersAroundAWaitingEvent)
}

func deadLettersAroundAWaitingEvent(t *testing.T) {
	b := setup(t, nil)
	defer b.close()
	first := relaytest.Event(1, 1, "OrderCreated")
	b.publisher.ask(func(c *cell) {
		for _, seq := range []int64{1, 3, 4} {
			c.dead.Add(first.AggregateID, true, chains.Ref{ID: relaytest.EventID(int(seq)), Seq: seq}, false)
		}
		chain := c.dead.Of(first.AggregateID.UUID())
		l := c.newLane(first.AggregateID.UUID(), dedup.Line{})
		two := &item{event: relaytest.Event(1, 2, "OrderUpdated")}
		l.items = append(l.items, two)

		if c.comesFirst(chain) {
			t.Error("event 2 has to be published before dead letter 1")
		}
		if !c.isBehind(l, two) {
			t.Error("event 2 does not wait for dead letter 1")
		}
		if w := c.takeReplay(chain, c.now, BreakerClosed, 10); len(w.refs) != 1 || w.refs[0].Seq != 1 {
			t.Errorf("dead letters %+v are replayed at once, want 1 alone", w.refs)
		}
		c.dead.Remove(relaytest.EventID(1))
		if c.isBehind(l, two) {
			t.Error("event 2 waits for dead letter 3")
		}
		if !c.comesFirst(chain) {
			t.Error("dead letter 3 does not wait for event 2")
		}
		l.items = nil
		if c.comesFirst(chain) {
			t.Error("dead letter 3 waits for nothing")
		}
		if w := c.takeReplay(chain, c.now, BreakerClosed, 10); len(w.refs) != 2 {
			t.Errorf("dead letters %+v are replayed at once, want 3 and 4", w.refs)
		}
	})
}

// A previous instance had event 2 with the producer when it ended, and events around it are dead
// letters: dead letters after it wait until the sweep has read the rows of that time and event 2
// was looked up, unless the topic contains event 2.
func TestStart_DeadLettersAfterAnUnknownEvent(t *testing.T) {
	t.Parallel()
	for _, published := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { deadLettersAfterAnUnknownEvent(t, published) })
	}
}

func deadLettersAfterAnUnknownEvent(t *testing.T, published bool) {
	b := setup(t, nil)
	defer b.close()
	p := b.publisher
	now := time.Now()
	var open OpenDeadLetters
	for _, seq := range []int64{1, 3, 4} {
		class := chains.ClassBehind
		if seq == 1 {
			class = chains.ClassBreakerOpen
		}
		e := relaytest.Event(1, seq, "OrderUpdated")
		open.entries = append(open.entries, dlq.ChainEntry{
			EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), Sequence: seq, EventType: e.Type, Status: dlq.Blocked, ErrorClass: class, WrittenAt: now.UnixMicro(), FirstFailedAt: now,
		})
	}
	p.ask(open.note)
	if published {
		e := relaytest.Event(1, 2, "OrderUpdated")
		p.ask(func(c *cell) {
			c.lines.Keep(e.AggregateID.UUID(), c.lines.Advance(e.AggregateID.UUID(), dedup.Line{}, 2, c.now))
		})
	}
	open.Know(p)
	want := 1
	if published {
		want = 3
	}
	take := func(c *cell) (chain *chains.Chain, refs []chains.Ref) {
		chain = c.dead.Of(relaytest.Event(1, 1, "OrderUpdated").AggregateID.UUID())
		return chain, c.takeReplay(chain, now, BreakerClosed, 10).refs
	}
	p.ask(func(c *cell) {
		if _, refs := take(c); len(refs) != want {
			t.Errorf("published %v: dead letters %+v are replayed at once, want %d", published, refs, want)
		}
	})
	p.Pass(now.Add(time.Hour).UnixMicro(), 0)
	p.ask(func(c *cell) {
		// The head may be replayed now, and the events before 3 are looked up when it is the head.
		if chain, refs := take(c); c.comesFirst(chain) || len(refs) != want {
			t.Errorf("published %v, the sweep has passed: dead letters %+v are replayed at once, want %d", published, refs, want)
		}
	})
}

// The row of event 1 is a scan's, because the log no longer contains it, and the sweep begins
// after the scan's rows: dead letter 2 waits for the scan.
func TestStart_ADeadLetterWaitsForTheScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p := b.publisher
		now, e := time.Now(), relaytest.Event(1, 2, "OrderUpdated")
		open := OpenDeadLetters{entries: []dlq.ChainEntry{{
			EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), Sequence: 2, EventType: e.Type, Status: dlq.Blocked, ErrorClass: chains.ClassBehind, WrittenAt: now.UnixMicro(), FirstFailedAt: now,
		}}}
		p.ask(open.note)
		rows := older.New(outbox.DefaultTable, &checkpoint.Scan{Until: now, Ranges: 4}, cdclog.Ring, func() int { return 10 })
		p.SetOlder(rows)
		p.Pass(now.Add(time.Hour).UnixMicro(), 0)
		waits := func() (does bool) {
			p.ask(func(c *cell) { does = c.comesFirst(c.dead.Of(e.AggregateID.UUID())) })
			return does
		}
		if !waits() {
			t.Error("the dead letter is replayed before the scan has reached its aggregate")
		}
		rows.Scanned(e.AggregateID)
		if waits() {
			t.Error("the dead letter waits for a scan that has passed its aggregate")
		}
	})
}

// The event before a chain is unknown: that concerns each of its dead letters up to a gap, in case
// an operator settles the ones before it, until the events before are looked up.
func TestStart_AnUnknownEventBeforeAChain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	p, now := b.publisher, time.Now()
	var open OpenDeadLetters
	for _, seq := range []int64{4, 5, 6, 8, 9} {
		e, class := relaytest.Event(1, seq, "OrderUpdated"), chains.ClassBehind
		if seq == 4 {
			class = chains.ClassBreakerOpen // nothing was with the producer
		}
		open.entries = append(open.entries, dlq.ChainEntry{
			EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), Sequence: seq, EventType: e.Type, Status: dlq.Blocked, ErrorClass: class, WrittenAt: now.UnixMicro(), FirstFailedAt: now,
			Unblocked: seq == 5,
		})
	}
	p.ask(open.note)
	open.Know(p)
	unknown := func() (numbers []int64) {
		p.ask(func(c *cell) {
			for _, ref := range c.dead.Of(relaytest.Event(1, 4, "OrderUpdated").AggregateID.UUID()).DeadLetters {
				if ref.After > 0 {
					numbers = append(numbers, ref.Seq)
				}
			}
		})
		return numbers
	}
	if got := unknown(); !slices.Equal(got, []int64{6, 8, 9}) { // 5 is in no chain
		t.Errorf("the events before %v are unknown, want 6, 8 and 9", got)
	}
	p.ask(func(c *cell) {
		c.dead.Of(relaytest.Event(1, 4, "OrderUpdated").AggregateID.UUID()).ClearAfter(relaytest.Event(1, 8, "OrderUpdated").ID.UUID())
	})
	if got := unknown(); !slices.Equal(got, []int64{6}) {
		t.Errorf("after a look-up before 8 the events before %v are unknown, want 6", got)
	}
}
