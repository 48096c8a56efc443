package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Each shard has its own dead letters, before and after a restart and a change of their number, and
// answers the requests of operators about them. Requests about dead letters of a shard that does
// not run wait for it.
func TestShards_DeadLetters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.MaxRecordBytes = 2 << 10 })
		defer w.close()
		const n = 12
		all := relaytest.Events(n, 4, "OrderUpdated")
		var deadLetters []outbox.Event
		for i := range all {
			if all[i].Sequence == 2 { // no broker takes it
				all[i].Payload = make([]byte, 4<<10)
				deadLetters = append(deadLetters, all[i])
			}
		}
		check := func(relays []*Relay) {
			t.Helper()
			for i, r := range relays {
				own := 0
				for _, e := range deadLetters {
					if r.own.HasAggregate(e.AggregateID) {
						own++
					}
				}
				s := r.Status()
				if s.BlockedAggregates != own || s.DeadLetters < own || s.DeadLetters > 3*own || own == 0 {
					t.Errorf("shard %d: %d aggregates are blocked by %d letters, want %d", i, s.BlockedAggregates, s.DeadLetters, own)
				}
			}
		}
		relays, stop := w.runShards(3)
		for _, e := range all[:3*n] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		check(relays)
		stop()
		relays, stop = w.runShards(3)
		time.Sleep(10 * time.Second)
		check(relays)
		stop()

		var stops []func()
		var two []*Relay
		for i := range 2 {
			r, stop := w.runShard(Shard{Index: i, Count: 2})
			two, stops = append(two, r), append(stops, stop)
		}
		for _, e := range all[3*n:] {
			w.write(e)
		}
		time.Sleep(30 * time.Second)
		check(two)
		stops[0]()
		store, err := dlq.Open(w.session, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range deadLetters {
			if err := store.Discard(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada", Reason: "too large"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		if s := two[1].Status(); s.DeadLetters != 0 {
			t.Errorf("%d letters are left to a shard that was asked to let go of them", s.DeadLetters)
		}
		waiting, err := store.Requests(t.Context(), "outbox.outbox_messages", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range waiting {
			if !two[0].own.HasText(q.AggregateID) {
				t.Errorf("the request about %s is still there", q.EventID)
			}
		}
		if len(waiting) == 0 {
			t.Error("requests about letters of a shard that does not run are gone")
		}
		r, stop0 := w.runShard(Shard{Index: 0, Count: 2})
		time.Sleep(30 * time.Second)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d letters are left to the shard that was away", s.DeadLetters)
		}
		if waiting, err = store.Requests(t.Context(), "outbox.outbox_messages", nil); err != nil || len(waiting) > 0 {
			t.Errorf("%d requests are left, %v", len(waiting), err)
		}
		stop0()
		stops[1]()
		var want []outbox.Event
		for _, e := range all {
			if e.Sequence != 2 {
				want = append(want, e)
			}
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), want)
	})
}

// A scan and requests for repairs are about the shard's own aggregates.
func TestShards_ScansAndRepairs(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		all := relaytest.Events(20, 4, "OrderCreated", "OrderUpdated")
		_, stop := w.runShards(0)
		for _, e := range all[:40] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		stop()
		// The log shows the events written now to nobody: the checkpoints pass them.
		for _, e := range all[40:60] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		scanAll(0)(&w.cfg)
		relays, stop := w.runShards(3)
		time.Sleep(time.Minute)
		scanned := 0
		for i, r := range relays {
			own := 0
			for _, e := range all[:60] {
				if r.own.HasAggregate(e.AggregateID) {
					own++
				}
			}
			s := r.Status().Backfill
			if s.Running || s.Done != backfill.Ranges || s.Rows != int64(own) {
				t.Errorf("shard %d: %+v, want all ranges done, of %d rows", i, s, own)
			}
			scanned += int(s.Published)
		}
		if scanned != 20 {
			t.Errorf("%d events were published by scans, want 20", scanned)
		}
		stop()
		for _, e := range all[60:] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			cfg := w.cfg
			w.cfg.Name = Shard{Index: i, Count: 3}.Name(cfg.Name)
			w.skipLog()
			w.cfg = cfg
		}
		requests := backfill.NewRepairs(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table)
		want := make(map[gocql.UUID]backfill.RepairState)
		for _, e := range all[60:] {
			want[e.ID.UUID()] = backfill.RepairAsked
			askFor(t, requests, e)
		}
		// A request waits for the shard of its aggregate, which alone knows the published events.
		for i := range 3 {
			r, stop := w.runShard(Shard{Index: i, Count: 3})
			time.Sleep(time.Minute)
			stop()
			answers := w.answers(requests, 0)
			for _, e := range all[60:] {
				if r.own.HasAggregate(e.AggregateID) {
					want[e.ID.UUID()] = backfill.RepairPublished
				}
				if q := answers[e.ID.UUID()]; q.State != want[e.ID.UUID()] {
					t.Errorf("event %s after shard %d: %s %s, want %s", e.ID, i, q.State, q.Detail, want[e.ID.UUID()])
				}
			}
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
	})
}

// Aggregates that are named by text have shards as well. A table whose partitions
// are not its aggregates has none: shard 0 carries it whole.
func TestShards_OfAnOwnTable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key   string
		whole bool
	}{{"aggregateid, id", false}, {"(id), aggregateid", true}} {
		t.Run(tt.key, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
				defer w.close()
				w.ownTable(tt.key, " WITH cdc = {'enabled': true}")
				debezium(&w.cfg)
				w.cfg.Mapping.Unordered = tt.whole
				columns, err := outbox.ReadColumns(t.Context(), w.session, "shop", "events")
				if err != nil {
					t.Fatal(err)
				}
				table, err := w.cfg.Mapping.Table("shop", "events", columns)
				if err != nil {
					t.Fatal(err)
				}
				want := make(map[gocql.UUID]bool)
				byShard := make([]int, 3)
				write := func(n int) {
					aggregate := "order-" + string(rune('a'+n%20))
					e := outbox.Event{ID: outbox.IDFromUUID(gocql.TimeUUID()), AggregateID: outbox.IDFromText(aggregate), AggregateType: "order", Type: "Placed", Payload: []byte("{}"), CreatedAt: time.Now()}
					b := w.session.Batch(gocql.LoggedBatch)
					if err := table.Append(b, e); err != nil {
						t.Fatal(err)
					}
					if err := b.Exec(); err != nil {
						t.Fatal(err)
					}
					want[e.ID.UUID()] = true
					for i := range byShard {
						p := cdclog.NewPortion(Shard{Index: i, Count: 3}, table)
						if !p.None() && p.HasText(aggregate) {
							byShard[i]++
						}
					}
				}
				for round := range 3 {
					count := []int{0, 3, 0}[round]
					relays, stop := w.runShards(count)
					for n := range 60 {
						if round == 1 || n < 10 {
							write(n)
						}
						time.Sleep(100 * time.Millisecond)
					}
					time.Sleep(30 * time.Second)
					for i, r := range relays {
						s := r.Status()
						if idle := tt.whole && i > 0; s.Idle != idle || len(s.Problems) > 0 {
							t.Errorf("shard %d of %d: Idle = %t, problems %q", i, count, s.Idle, s.Problems)
						}
						n := int(sum(r.metrics.Published))
						if tt.whole && count > 0 && (n == 60) != (i == 0) || !tt.whole && count > 0 && (n == 0 || n == 60) {
							t.Errorf("shard %d of %d published %d events of 60", i, count, n)
						}
					}
					stop()
				}
				got := w.consume("outbox.event.order")
				for _, d := range got {
					if !want[d.ID.UUID()] {
						t.Errorf("event %s came twice", d.ID)
					}
					delete(want, d.ID.UUID())
				}
				if len(want) > 0 || byShard[0] == 0 || !tt.whole && (byShard[1] == 0 || byShard[2] == 0) {
					t.Errorf("%d events are lost; events by shard: %d", len(want), byShard)
				}
			})
		})
	}
}

// A scan of the outbox table that is not done when the number of shards changes is
// done by those after it, each of its own part, and again when it changes back.
func TestShards_ContinueAScan(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		all := relaytest.Events(60, 5, "OrderCreated", "OrderUpdated")
		_, stop := w.runShards(0)
		for _, e := range all[:60] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		stop()
		for _, e := range all[60:] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		scanAll(10)(&w.cfg)
		began := func() (n int) {
			for i, r := range []Shard{{}, {Index: 0, Count: 3}, {Index: 1, Count: 3}, {Index: 2, Count: 3}, {Index: 0, Count: 2}, {Index: 1, Count: 2}} {
				rows, err := checkpoint.NewScans(w.session, "outbox", r.Name(w.cfg.Name), "outbox.outbox_messages", nil).Load(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					if row.State == checkpoint.ScanRunning {
						n |= 1 << i
					}
				}
			}
			return n
		}
		for i, count := range []int{0, 3, 2} {
			_, stop := w.runShards(count)
			time.Sleep(9 * time.Second)
			if i == 0 {
				w.cfg.BackfillFrom = time.Time{} // nobody asks again
			}
			if i == 1 {
				w.cfg.BackfillRowsPerSecond = 0
			}
			stop()
			if unfinished := began(); i < 2 && unfinished == 0 {
				t.Errorf("layout %d: the scan is done too early to tell anything", i)
			}
		}
		_, stop = w.runShards(2)
		time.Sleep(3 * time.Minute)
		stop()
		if n := began() >> 4; n != 0 {
			t.Errorf("scans are not done: %b", n)
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all) // and not by the one that began it
		_, stop = w.runShards(0)
		time.Sleep(3 * time.Minute)
		stop()
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
	})
}

// A row without a place in its aggregate is a dead letter of its own, of the shard of its own id:
// one shard is responsible for it, whichever shard wrote it.
func TestShards_DeadLettersByThemselves(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		deadLetters := func(relays []*Relay) (n int) {
			for _, r := range relays {
				n += r.Status().DeadLetters
			}
			return n
		}
		relays, stop := w.runShards(2)
		var ids []gocql.UUID
		for n := range 24 {
			e := relaytest.Event(n, 0, "OrderCreated")
			if err := w.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type, payload) VALUES (?, 0, ?, 'order', 'OrderCreated', 0x00)",
				e.AggregateID, e.ID).Exec(); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.ID.UUID())
		}
		time.Sleep(30 * time.Second)
		if n := deadLetters(relays); n != len(ids) {
			t.Errorf("%d letters, want %d", n, len(ids))
		}
		edit := dlq.Edit{Payload: []byte(`{"mended":true}`), ContentType: "application/json"}
		for _, id := range ids[:12] {
			if _, err := w.deadLetters().Edit(t.Context(), id, edit, dlq.Actor{Name: "ada", Reason: "test"}, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		if got := w.consume("OrderCreated"); len(got) != 12 {
			t.Errorf("%d records of 12 letters that were edited", len(got))
		}
		ids = ids[12:]
		again := func() { // the rows come once more
			stop()
			if err := w.session.Query("TRUNCATE relay_checkpoints").Exec(); err != nil {
				t.Fatal(err)
			}
			relays, stop = w.runShards(2)
		}
		again()
		time.Sleep(30 * time.Second)
		for i, r := range relays {
			own := 0
			for _, id := range ids {
				if r.own.HasAggregate(outbox.IDFromUUID(id)) {
					own++
				}
			}
			if n := r.Status().DeadLetters; n != own || own == 0 {
				t.Errorf("shard %d has %d letters, want %d", i, n, own)
			}
		}
		for _, id := range ids {
			if err := w.deadLetters().Discard(t.Context(), id, dlq.Actor{Name: "ada", Reason: "nothing"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Second)
		for range 2 {
			if n := deadLetters(relays); n != 0 {
				t.Errorf("%d letters are left, want none", n)
			}
			again()
			time.Sleep(30 * time.Second)
		}
		stop()
		if got := w.consume("OrderCreated"); len(got) != 12 {
			t.Errorf("%d records, want those of the 12 letters that were edited", len(got))
		}
	})
}
