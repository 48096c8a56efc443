package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// scanAll makes the relay scan for everything that is old enough.
func scanAll(rowsPerSecond int) func(*Config) {
	return func(c *Config) {
		c.BackfillFrom, c.BackfillRowsPerSecond = time.Unix(0, 0), rowsPerSecond
		c.IdleCheckpoint = 5 * time.Second
	}
}

// ranBefore makes the relay one that has begun now: at a first start the log may have all events, and
// a scan is not needed.
func (w *world) ranBefore() {
	w.t.Helper()
	store := checkpoint.NewCQLStore(w.session, "outbox", w.cfg.shardName(), "outbox."+w.cfg.Table, w.cfg.Name, nil, 0)
	if err := store.SaveFirst(w.t.Context(), time.Now()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) backfills() (rows []checkpoint.Scan) {
	w.t.Helper()
	rows, err := checkpoint.NewScans(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table, nil).Load(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// A first start with a young table scans nothing. A requested scan finds events that are not in the
// topics, once, and the same time requests one scan.
func TestBackfill_Forced(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		all := relaytest.Events(20, 4, "OrderCreated", "OrderUpdated")
		for _, e := range all[:40] {
			w.write(e)
		}
		r, stop := w.run()
		time.Sleep(time.Minute)
		if s := r.Status().Backfill; s.Running || s.Ranges != 0 {
			t.Errorf("Status().Backfill = %+v of a first start with a young table, want none", s)
		}
		if rows := w.backfills(); len(rows) != 1 || rows[0].State != checkpoint.ScanNotNeeded {
			t.Errorf("backfills = %+v, want one that was not needed", rows)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		// The log shows the events written now to nobody: the checkpoints pass them.
		for _, e := range all[40:] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		scanAll(0)(&w.cfg)
		for range 2 {
			r, stop = w.run()
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
		rows := w.backfills()
		if len(rows) != 2 || rows[0].State != checkpoint.ScanDone || rows[0].Published != 40 || rows[0].Read != 80 || len(rows[0].Done) != backfill.Ranges {
			t.Errorf("backfills = %+v, want one done, of 80 rows, with 40 published", rows)
		}
		if n := relaytest.Count(r.metrics.Found[publish.ByBackfill]); n != 0 {
			t.Errorf("the same time asked twice: %v events", n)
		}
	})
}

// skipLog moves all checkpoints to now, as if the log had been read.
func (w *world) skipLog() {
	w.t.Helper()
	store := checkpoint.NewCQLStore(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table, w.cfg.Name, nil, 0)
	gen, _, err := store.Start(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := cdclog.NewGenerations(w.session, "outbox", w.cfg.Table, nil).Generation(w.t.Context(), gen)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range g.Streams {
		if err := store.SavePosition(w.t.Context(), gen, s, gocql.MaxTimeUUID(w.db.Faults().Clock().Now())); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The relay is killed again and again during a slow scan, while events of the
// same aggregates and of others come in; with little memory it scans in parts.
// Nothing is lost, nothing is there twice, all is in sequence.
func TestBackfill_CrashesRepeatNothing(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(6)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 5))
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					scanAll(30 + rnd.IntN(300))(c)
					c.ConfidenceWindow = 10 * time.Second
					c.MaxAggregates = 3 + rnd.IntN(50)
					if seed%2 == 0 {
						c.DedupMemory = 150 * dedup.BytesPerEvent
					}
				})
				defer w.close()
				w.ranBefore()
				topics := []string{"OrderCreated", "OrderUpdated"}
				all := relaytest.Events(60, 8, topics...)
				for _, e := range all[:300] {
					w.write(e)
				}
				time.Sleep(time.Minute)
				var writing sync.WaitGroup
				writing.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, 6))
					for _, e := range all[300:] {
						w.write(e)
						time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
					}
				})
				for range 12 {
					w.crashAfter(time.Duration(rnd.IntN(5000)) * time.Millisecond)
				}
				r, stop := w.run()
				writing.Wait()
				time.Sleep(2 * time.Minute)
				if s := r.Status(); s.Backfill.Running || len(s.Problems) > 0 {
					t.Errorf("Status() = %+v, want no scan under way and no problems", s)
				}
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := w.consume(topics...)
				relaytest.CheckOrder(t, got, all)
				relaytest.CheckTimes(t, got)
				if rows := w.backfills(); rows[0].State != checkpoint.ScanDone || rows[0].Reason != backfill.Forced {
					t.Errorf("backfills = %+v, want one done", rows)
				}
			})
		})
	}
}

// What a scan published a moment ago, before a crash, the log still shows to the
// tail of the next start, which reads further back than the sweep and before the
// library has opened all streams. It is not published again.
func TestBackfill_TailLeavesToTheScanWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			scanAll(0)(c)
			c.ConfidenceWindow, c.BusyDelay = 10*time.Second, 10*time.Second
		})
		defer w.close()
		w.ranBefore()
		all := relaytest.Events(600, 1, "OrderCreated")
		// The scan answers for the ones of the first half, and of one with the very
		// time until which it does.
		first := time.Now().Truncate(time.Millisecond)
		for i, e := range all[:500] {
			w.writeAt(e, first.Add(time.Duration(i)*time.Millisecond))
		}
		time.Sleep(time.Until(first.Add(w.cfg.ConfidenceWindow + 250*time.Millisecond)))
		for range 3 {
			w.crashAfter(3 * time.Second)
		}
		for _, e := range all[500:] {
			w.write(e)
		}
		_, stop := w.run()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
		until := w.backfills()[0].Until
		if last := first.Add(499 * time.Millisecond); until.Before(first) || until.After(last) {
			t.Errorf("the scan answers until %s, want a time from %s to %s", until, first, last)
		}
	})
}

// While a scan runs, events of aggregates that it has not come to go out within
// milliseconds, behind their older rows, which are read by key.
func TestBackfill_NewEventsOvertakeTheScan(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, scanAll(1))
		defer w.close()
		w.ranBefore()
		all := relaytest.Events(50, 3, "OrderUpdated")
		for _, e := range all[:100] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		written := make(map[gocql.UUID]time.Time)
		for _, e := range slices.Backward(all[100:]) { // in this order none is written while the scan reads its aggregate
			w.write(e)
			written[e.ID.UUID()] = time.Now()
			time.Sleep(300 * time.Millisecond)
		}
		for _, e := range relaytest.Events(70, 1, "OrderUpdated")[50:] { // aggregates that nobody knows
			all = append(all, e)
			w.write(e)
			written[e.ID.UUID()] = time.Now()
		}
		time.Sleep(5 * time.Second)
		if s := r.Status().Backfill; !s.Running || s.Done == s.Ranges {
			t.Errorf("Status().Backfill = %+v, want one under way", s)
		}
		got := w.consume("OrderUpdated")
		relaytest.CheckOrder(t, got, all)
		for _, d := range got {
			if at, ok := written[d.ID.UUID()]; ok && d.At.Sub(at) > time.Second {
				t.Errorf("event %s came after %s", d.ID, d.At.Sub(at))
			}
		}
		time.Sleep(5 * time.Minute)
		if s := r.Status().Backfill; s.Running || s.Done != s.Ranges {
			t.Errorf("Status().Backfill = %+v, want it done", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// An event that the log has shown to nobody is published before a new one of its aggregate, though
// later ones are published already and in the dedup index.
func TestBackfill_HolesAreFilledBeforeNewEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
		defer w.close()
		all := relaytest.Events(20, 4, "OrderUpdated")
		live := func(part []outbox.Event) {
			t.Helper()
			_, stop := w.run()
			time.Sleep(5 * time.Second)
			for _, e := range part {
				w.write(e)
			}
			time.Sleep(10 * time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		live(all[:20])
		for _, e := range all[20:40] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		margin := w.cfg.ReadBackMargin
		w.cfg.ReadBackMargin = -1 // or the third event would find that the second is not published
		live(all[40:60])
		w.cfg.ReadBackMargin = margin
		time.Sleep(5 * time.Second)
		scanAll(1)(&w.cfg)
		live(all[60:])
		var last [20]int64 // number of the last event, by aggregate
		for _, d := range w.consume("OrderUpdated") {
			a := slices.IndexFunc(all[:20], func(e outbox.Event) bool { return e.AggregateID == d.AggregateID })
			if want := map[int64]int64{1: 0, 3: 1, 2: 3, 4: 2}[d.Sequence]; last[a] != want {
				t.Errorf("aggregate %d: seq %d comes after %d, want after %d", a, d.Sequence, last[a], want)
			}
			last[a] = d.Sequence
		}
		for a, n := range last {
			if n != 4 {
				t.Errorf("aggregate %d ends with seq %d", a, n)
			}
		}
	})
}

// A row that is no event is a dead letter; the scan continues, and ends.
func TestBackfill_RowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, scanAll(0))
		defer w.close()
		w.ranBefore()
		all := relaytest.Events(10, 3, "OrderUpdated")
		for _, e := range all {
			w.write(e)
		}
		bad := all[10]
		query := func(stmt string, args ...any) {
			t.Helper()
			if err := w.session.Query(stmt, args...).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		query("UPDATE outbox_messages SET event_type = '' WHERE aggregate_id = ? AND seq = ?", bad.AggregateID, bad.Sequence)
		time.Sleep(time.Minute)
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		held := func(e outbox.Event) bool { return e.AggregateID == bad.AggregateID && e.Sequence >= bad.Sequence }
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), slices.DeleteFunc(slices.Clone(all), held))
		if s := r.Status(); s.Backfill.Running || s.DeadLetters != 2 || len(s.Problems) != 0 {
			t.Errorf("Status() = %+v, want a scan that is done, and two dead letters", s)
		}
		query("UPDATE outbox_messages SET event_type = ? WHERE aggregate_id = ? AND seq = ?", bad.Type, bad.AggregateID, bad.Sequence)
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The log outruns a relay that runs, because the broker is away for too long: it
// starts anew with a scan, by itself.
func TestBackfill_LogOutrunsARelayThatRuns(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		away := &wire{delay: func() time.Duration { return 0 }}
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.MaxInFlightRecords, c.MaxStreamBacklog = 20, 20
		})
		defer w.close()
		w.cfg.DeadLetters = DeadLettersOff // else the events leave the log
		query := "ALTER TABLE outbox_messages WITH cdc = {'enabled': true, 'delta': 'full', 'preimage': false, 'postimage': false, 'ttl': 7200}"
		if err := w.session.Query(query).Exec(); err != nil {
			t.Fatal(err)
		}
		away.dial = w.net.DialContext
		w.cfg.Kafka = append(slices.Clone(w.cfg.Kafka), kgo.Dialer(away.DialContext))
		all := relaytest.Events(40, 9, "OrderCreated", "OrderUpdated")
		r, stop := w.run()
		for i, e := range all {
			w.write(e)
			time.Sleep(time.Minute)
			switch i {
			case 40:
				away.kill()
			case 320:
				away.mend()
			}
		}
		time.Sleep(10 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 || s.Backfill.Running || s.Backfill.Reason != backfill.Outrun {
			t.Errorf("Status() = %+v, want no problems, and a scan behind it", s)
		}
		if n := relaytest.Count(r.metrics.Found[publish.ByBackfill]); n == 0 {
			t.Error("the scan found nothing")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.cfg.Kafka = w.cfg.Kafka[:len(w.cfg.Kafka)-1]
		got := w.consume("OrderCreated", "OrderUpdated")
		relaytest.CheckOrder(t, got, all)
		relaytest.CheckTimes(t, got)
	})
}

// A relay is killed shortly after a scan. The next one, which reads back events from before the
// scan and from the scan, repeats none of them, whichever topics they are in.
func TestBackfill_KilledAfterTheScan(t *testing.T) {
	t.Parallel()
	for _, topics := range [][]string{{"OrderCreated"}, {"OrderUpdated", "OrderCreated"}} {
		t.Run(fmt.Sprint(topics), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.IdleCheckpoint, c.Tail = 30*time.Second, 5*time.Second, TailOff
				})
				defer w.close()
				var all []outbox.Event
				for seq := range 6 {
					for aggregate := range 5 {
						all = append(all, relaytest.Event(aggregate, int64(seq+1), topics[seq/3%len(topics)]))
					}
				}
				write := func(seq int) {
					for _, e := range all[5*(seq-1) : 5*seq] {
						w.write(e)
					}
				}
				time.Sleep(time.Minute)
				_, stop := w.run()
				write(1)
				time.Sleep(time.Minute)
				write(2)
				if err := stop(); err != nil {
					t.Error(err)
				}
				write(3)
				w.exec("ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'delta': 'keys'}")
				write(4)
				w.exec(cdcOn)
				write(5)
				w.crashAfter(20 * time.Second)
				w.crashAfter(45 * time.Second) // it has scanned
				if n := len(w.consume(topics...)); n != 25 {
					t.Fatalf("%d records of 25 events before the start: the test does not reach what it is for", n)
				}
				_, stop = w.run()
				time.Sleep(2 * time.Minute)
				write(6)
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume(topics...), all)
			})
		})
	}
}
