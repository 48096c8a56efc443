package publish

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A repeated failure is logged once a minute, and immediately in the next outage.
func TestFailureLog(t *testing.T) {
	t.Parallel()
	var c failureLog
	now := time.Now()
	said := 0
	for range 150 { // seconds
		if c.due(now) {
			said++
		}
		now = now.Add(time.Second)
	}
	if said != 3 {
		t.Errorf("logged %d times in 150 s, want 3", said)
	}
	c.over()
	if !c.due(now) {
		t.Error("not logged immediately in the next outage")
	}
}

// An event whose dead letter is settled counts as published, but only an event known to
// be in its topic ends a replay.
func TestReplayer_IsOutOnlyInItsTopic(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	b.publisher.ask(func(c *cell) {
		c.ids.addUnsent(relaytest.EventID(1), 1)
		c.ids.add(&item{event: outbox.Event{ID: outbox.IDFromUUID(relaytest.EventID(2))}}, true)
	})
	r := &Replayer{p: b.publisher}
	if published, _ := b.publisher.Indexed(relaytest.EventID(1)); !published || r.isOut(relaytest.EventID(1)) || !r.isOut(relaytest.EventID(2)) || r.isOut(relaytest.EventID(3)) {
		t.Errorf("isOut() = %t, %t, %t of a settled, a published and an unknown event, want only the second",
			r.isOut(relaytest.EventID(1)), r.isOut(relaytest.EventID(2)), r.isOut(relaytest.EventID(3)))
	}
}

// A dead letter is discarded while its replay is in progress, and the broker acknowledges
// the replay: the dedup index contains the event once, as one that is in its topic.
func TestReplay_DiscardedInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p, e := b.publisher, relaytest.Event(1, 1, "OrderUpdated")
		r := &Replayer{p: p}
		p.ask(func(c *cell) {
			c.settled(e.ID.UUID(), 10)
			c.replayed(&lane{id: e.AggregateID.UUID()}, &item{event: e, written: 10}, new(kgo.Record))
		})
		if !r.isOut(e.ID.UUID()) {
			t.Error("the event does not count as one in its topic")
		}
		p.ask(func(c *cell) {
			c.ids.index.Show(e.ID.UUID(), 10)
			if fresh, shown := c.ids.index.Fresh(), c.ids.index.Shown(); fresh != 0 || shown != 1 {
				t.Errorf("%d fresh and %d shown in the index after the sweep read the row, want 0 and 1", fresh, shown)
			}
		})
	})
}

// A priority that an operator has changed decides which dead letter is replayed first.
func TestReplay_FollowsAChangedPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p, now := b.publisher, time.Now()
		r := &Replayer{p: p, log: p.log}
		var entries []dlq.ChainEntry
		for i := range 2 {
			e := relaytest.Event(i, 1, "OrderUpdated")
			entries = append(entries, dlq.ChainEntry{
				EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), Sequence: 1, EventType: e.Type, ErrorClass: chains.ClassBreakerOpen, Status: dlq.Pending,
				Strategy: dlq.StrategyBreakerClose, FirstFailedAt: now.Add(time.Duration(i) * time.Second),
			})
		}
		p.ask((&OpenDeadLetters{entries: slices.Clone(entries)}).note)
		first := func() (id gocql.UUID) {
			p.ask(func(c *cell) { id = c.dead.Front(now).Head().ID })
			return id
		}
		if first() != entries[0].EventID {
			t.Error("without priorities the oldest is not the first")
		}
		entries[1].Priority = 5
		r.Answer(&dlq.Request{EventID: entries[1].EventID, Action: dlq.ActionSet, Entry: entries[1]})
		if first() != entries[1].EventID {
			t.Error("the one with the higher priority is not the first")
		}
		// Those whose replay was requested precede the others, and stay so when a priority is set.
		for i := range entries {
			r.Answer(&dlq.Request{EventID: entries[i].EventID, Action: dlq.ActionReplay, Entry: entries[i]})
		}
		entries[0].Priority = 9
		r.Answer(&dlq.Request{EventID: entries[0].EventID, Action: dlq.ActionSet, Entry: entries[0]})
		if first() != entries[0].EventID {
			t.Error("of requested replays the one with the higher priority is not the first")
		}
	})
}

// The event before a chain of blocked events was with the producer of an earlier process,
// and is no dead letter. Its row may have a later write time than the head of the chain,
// because another clock wrote it: the chain waits until the sweep reader has passed that
// too, and while a reader searches for earlier events of the aggregate.
func TestReplay_WaitsForTheEventBeforeTheChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p, e := b.publisher, relaytest.Event(1, 2, "OrderUpdated")
		written := time.Now()
		p.ask((&OpenDeadLetters{entries: []dlq.ChainEntry{{
			EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), Sequence: 2, EventType: e.Type, ErrorClass: chains.ClassBehind, WrittenAt: written.UnixMicro(),
		}}}).note)
		waits := func(want bool, when string) {
			t.Helper()
			p.ask(func(c *cell) {
				if got := c.comesFirst(c.dead.Of(e.AggregateID.UUID())); got != want {
					t.Errorf("%s: the chain waits: %t, want %t", when, got, want)
				}
			})
		}
		p.Pass(written.Add(20*time.Second).UnixMicro(), time.Minute)
		waits(true, "the sweep has passed the head")
		p.Pass(written.Add(time.Minute).UnixMicro(), time.Minute)
		waits(false, "the sweep has passed the event before it")
		release, err := p.Claim(t.Context(), e.AggregateID.UUID())
		if err != nil {
			t.Fatal(err)
		}
		waits(true, "a reader searches for earlier events")
		release()
		waits(false, "the search has ended")
	})
}
