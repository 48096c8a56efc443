package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// answers waits until all requests have a final answer or time is up, and
// returns their states by event.
func (w *world) answers(requests *backfill.Repairs, limit time.Duration) map[gocql.UUID]backfill.Repair {
	w.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Second) {
		all, err := requests.All(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		out, final := make(map[gocql.UUID]backfill.Repair), true
		for _, q := range all {
			out[q.EventID] = q
			final = final && q.State.Final()
		}
		if final || time.Now().After(deadline) {
			return out
		}
	}
}

// askFor requests the repair of an event.
func askFor(t *testing.T, requests *backfill.Repairs, e outbox.Event) backfill.Repair {
	t.Helper()
	q := backfill.Repair{Aggregate: e.AggregateID, EventID: e.ID.UUID(), Sequence: e.Sequence}
	if err := requests.Ask(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	return q
}

// Events that the log showed to nobody are published on request, in sequence; one that the relay
// has published already is not published again; and events that the outbox does not have are
// reported.
func TestRepair(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		all := relaytest.Events(4, 6, "OrderCreated", "OrderUpdated")
		_, stop := w.run()
		time.Sleep(30 * time.Second)
		for _, e := range all[:8] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for _, e := range all[8:16] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		ask := func(e outbox.Event) backfill.Repair {
			t.Helper()
			q := askFor(t, requests, e)
			return q
		}
		for i := range 8 { // the last first: they go out in sequence
			ask(all[15-i])
		}
		stranger := relaytest.Event(99, 1, "OrderCreated")
		ask(stranger)
		taken := ask(all[0]) // as if a relay had ended with it
		if _, err := requests.Answer(t.Context(), taken.ID, backfill.RepairAsked, backfill.RepairTaken, ""); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run()
		got := w.answers(requests, time.Minute)
		for _, e := range all[8:16] {
			if got[e.ID.UUID()].State != backfill.RepairPublished {
				t.Errorf("event %s (seq %d): %+v, want published", e.ID, e.Sequence, got[e.ID.UUID()])
			}
		}
		if got[stranger.ID.UUID()].State != backfill.RepairGone || got[all[0].ID.UUID()].State != backfill.RepairUnknown {
			t.Errorf("a stranger is %s, one that was taken %s, want gone and unknown", got[stranger.ID.UUID()].State, got[all[0].ID.UUID()].State)
		}
		published := w.consume("OrderCreated", "OrderUpdated")
		relaytest.CheckOrder(t, published, all[:16])
		relaytest.CheckTimes(t, published)
		for _, q := range got {
			if err := requests.Forget(t.Context(), q.ID); err != nil {
				t.Fatal(err)
			}
		}

		// The relay waits for events that its readers will reach, and publishes them once.
		for _, e := range all[16:] {
			w.write(e)
			ask(e)
		}
		time.Sleep(6 * time.Second)
		waiting := 0
		for _, q := range w.answers(requests, 0) {
			if q.State == backfill.RepairAsked && q.Detail != "" {
				waiting++
			}
		}
		if waiting == 0 {
			t.Error("no request waits for the relay to come to its event")
		}
		for id, q := range w.answers(requests, 5*time.Minute) {
			if q.State != backfill.RepairPublished {
				t.Errorf("event %s: %+v, want published", id, q)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
	})
}

// An event that is a dead letter is not answered as published, whether it was
// one before it was asked for or became one by the attempt.
func TestRepair_OfADeadLetter(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.IdleCheckpoint = 5 * time.Second
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		before, after := relaytest.Event(1, 1, "OrderCreated"), relaytest.Event(2, 1, "OrderCreated")
		endBefore, endAfter := w.refuse(before.ID.UUID(), kerr.InvalidRecord), w.refuse(after.ID.UUID(), kerr.InvalidRecord)
		_, stop := w.run()
		time.Sleep(5 * time.Second)
		w.write(before)
		time.Sleep(time.Minute)
		_ = stop()
		w.write(after)
		time.Sleep(time.Minute)
		w.skipLog() // the relay never sees it
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		for _, e := range []outbox.Event{before, after} {
			askFor(t, requests, e)
		}
		_, stop = w.run()
		time.Sleep(time.Minute)
		for id, q := range w.answers(requests, 0) {
			if q.State != backfill.RepairAsked || q.Detail != backfill.IsDeadLetter {
				t.Errorf("event %s: %+v, want it to wait for its dead letter", id, q)
			}
		}
		endBefore()
		endAfter()
		for _, e := range []outbox.Event{before, after} {
			if err := w.deadLetters().Replay(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
				t.Errorf("Replay() error = %v", err)
			}
		}
		for id, q := range w.answers(requests, time.Minute) {
			if q.State != backfill.RepairPublished {
				t.Errorf("event %s: %+v, want published", id, q)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated"), []outbox.Event{before, after})
	})
}

// An event that the relay has published, and whose topic is proven twice not to have it,
// is published again: an answer "published" means that the event is in its topic. One
// proof alone may be older than the publication, and so may all that were made before
// the first answer.
func TestRepair_OfAnEventThatItsTopicHasLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		e := relaytest.Event(1, 1, "OrderCreated")
		w.write(e)
		time.Sleep(10 * time.Minute)
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		ask := func() {
			t.Helper()
			askFor(t, requests, e)
		}
		check := func(want backfill.RepairState, records int) {
			t.Helper()
			time.Sleep(30 * time.Second)
			all, err := requests.All(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range all {
				if q.State != want {
					t.Errorf("%+v, want %s", q, want)
				}
				if err := requests.Forget(t.Context(), q.ID); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(w.consume("OrderCreated")); n != records {
				t.Errorf("the topic has %d records, want %d", n, records)
			}
		}
		ask()
		ask()
		check(backfill.RepairUnknown, 1)
		ask()
		check(backfill.RepairPublished, 2)
		ask()
		check(backfill.RepairUnknown, 2)
		if n := relaytest.Count(r.metrics.SequenceConflicts); n != 0 {
			t.Errorf("%v events have a number of another one, want none: it was one event", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// An event is requested while no relay runs, and the next one publishes it by a scan before
// it reads the request. The index does not contain it then. A later request is right.
func TestRepair_OfAnEventThatAScanPublished(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		_, stop := w.run()
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		e := relaytest.Event(1, 1, "OrderCreated")
		w.write(e)
		time.Sleep(time.Minute)
		w.skipLog()
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		ask := func(want backfill.RepairState, records int) {
			t.Helper()
			q := askFor(t, requests, e)
			if stop == nil {
				scanAll(0)(&w.cfg)
				_, stop = w.run()
			}
			if got := w.answers(requests, 2*time.Minute)[e.ID.UUID()]; got.State != want {
				t.Errorf("the request is %+v, want %s", got, want)
			}
			if err := requests.Forget(t.Context(), q.ID); err != nil {
				t.Fatal(err)
			}
			if n := len(w.consume("OrderCreated")); n != records {
				t.Errorf("the topic has %d records, want %d", n, records)
			}
		}
		stop = nil
		ask(backfill.RepairUnknown, 1)
		ask(backfill.RepairPublished, 2)
		// A row that was written after the scan, and became visible behind the readers of the log.
		time.Sleep(10 * time.Minute)
		e = relaytest.Event(2, 1, "OrderCreated")
		w.writeAt(e, time.Now().Add(-5*time.Minute))
		ask(backfill.RepairPublished, 3)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A request waited for the sweep reader, which has published its event since, under a relay
// that does not remember it. The request publishes nothing.
func TestRepair_OfAnEventThatTheSweepPublished(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		_, stop := w.run()
		time.Sleep(30 * time.Second)
		e := relaytest.Event(1, 1, "OrderCreated")
		w.write(e)
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		q := askFor(t, requests, e)
		if _, err := requests.Answer(t.Context(), q.ID, backfill.RepairAsked, backfill.RepairAsked, backfill.IsBeforeSweep); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run()
		if got := w.answers(requests, 2*time.Minute)[e.ID.UUID()]; got.State != backfill.RepairUnknown {
			t.Errorf("the request is %+v, want unknown", got)
		}
		if n := len(w.consume("OrderCreated")); n != 1 {
			t.Errorf("the topic has %d records, want 1", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// An event whose dead letter an operator has discarded is not published by a request,
// before and after a restart.
func TestRepair_OfADiscardedEvent(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.IdleCheckpoint = 5 * time.Second
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		e := relaytest.Event(1, 1, "OrderCreated")
		end := w.refuse(e.ID.UUID(), kerr.InvalidRecord)
		_, stop := w.run()
		time.Sleep(5 * time.Second)
		w.write(e)
		time.Sleep(5 * time.Minute)
		if err := w.deadLetters().Discard(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		end()
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		for range 2 {
			askFor(t, requests, e)
			for _, q := range w.answers(requests, time.Minute) {
				if q.State != backfill.RepairUnknown {
					t.Errorf("%+v, want unknown", q)
				}
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			_, stop = w.run()
			time.Sleep(time.Minute)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(w.consume("OrderCreated")); n != 0 {
			t.Errorf("the topic has %d records, want none", n)
		}
	})
}

// The row of an event is behind the sweep, and that of the event before it is not: a
// request for the later one waits for the sweep to publish the earlier one.
func TestRepair_WaitsForEarlierEvents(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.Tail, c.ConfidenceWindow, c.IdleCheckpoint = TailOff, 2*time.Minute, 5*time.Second
		})
		defer w.close()
		_, stop := w.run()
		time.Sleep(10 * time.Minute)
		all := relaytest.Events(1, 3, "OrderCreated")
		for _, e := range all[:2] {
			w.write(e)
		}
		w.writeAt(all[2], time.Now().Add(-5*time.Minute))
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		ask := func(wait time.Duration) backfill.Repair {
			t.Helper()
			q := backfill.Repair{Aggregate: all[2].AggregateID, EventID: all[2].ID.UUID(), Sequence: all[2].Sequence}
			if err := requests.Ask(t.Context(), &q); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			return w.answers(requests, 0)[q.EventID]
		}
		if q := ask(time.Minute); q.State != backfill.RepairAsked || q.Detail != backfill.IsBehindEarlier {
			t.Errorf("%+v, want the request to wait for the earlier events", q)
		}
		for _, q := range w.answers(requests, 5*time.Minute) {
			if q.State != backfill.RepairUnknown {
				t.Errorf("%+v, want unknown", q)
			}
			if err := requests.Forget(t.Context(), q.ID); err != nil {
				t.Fatal(err)
			}
		}
		if q := ask(time.Minute); q.State != backfill.RepairPublished {
			t.Errorf("%+v, want published", q)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
	})
}

// Two rows of an aggregate became visible behind the sweep reader, and only the later one is
// requested: the earlier one is published first.
func TestRepair_PublishesEarlierMissingEvents(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name    string
		onTime  []int64
		late    []int64 // the last one is requested
		restart bool
	}{
		{name: "a new aggregate", late: []int64{1, 2}},
		{name: "a known aggregate", onTime: []int64{1, 2}, late: []int64{3, 4, 5}},
		{name: "a later event is published", onTime: []int64{1, 4}, late: []int64{2, 3}},
		{name: "an aggregate of before a restart", onTime: []int64{1, 2}, late: []int64{3, 4}, restart: true},
		{name: "a later event is published, before a restart", onTime: []int64{4}, late: []int64{2, 3}, restart: true},
		{name: "a new aggregate, before a restart", late: []int64{1, 2}, restart: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.IdleCheckpoint, c.TailMaxInterval = 2*time.Minute, 5*time.Second, 2*time.Second
				})
				defer w.close()
				_, stop := w.run()
				time.Sleep(10 * time.Minute)
				const aggregates = 3
				each := func(do func(aggregate int)) {
					for a := range aggregates {
						do(a)
					}
					time.Sleep(10 * time.Minute)
				}
				for _, seq := range tt.onTime {
					each(func(a int) { w.write(relaytest.Event(a, seq, "OrderUpdated")) })
				}
				for _, seq := range tt.late {
					each(func(a int) { w.writeAt(relaytest.Event(a, seq, "OrderUpdated"), time.Now().Add(-5*time.Minute)) })
				}
				if tt.restart {
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run()
					time.Sleep(10 * time.Minute)
				}
				requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
				each(func(a int) {
					e := relaytest.Event(a, tt.late[len(tt.late)-1], "OrderUpdated")
					askFor(t, requests, e)
				})
				for _, q := range w.answers(requests, time.Minute) {
					if q.State != backfill.RepairPublished {
						t.Errorf("%+v, want published", q)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				got := make(map[gocql.UUID][]int64)
				for _, d := range w.consume("OrderUpdated") {
					got[d.AggregateID.UUID()] = append(got[d.AggregateID.UUID()], d.Sequence)
				}
				for a := range aggregates {
					if id, want := relaytest.Event(a, 1, "").AggregateID.UUID(), slices.Concat(tt.onTime, tt.late); !slices.Equal(got[id], want) {
						t.Errorf("published %v of aggregate %s, want %v", got[id], id, want)
					}
				}
			})
		})
	}
}
