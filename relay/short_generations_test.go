package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// reads counts the reads of a node.
type reads struct{ all atomic.Int64 }

// Before implements engine.Hook.
func (r *reads) Before(_ context.Context, op engine.Op) engine.Verdict {
	if op.Kind == engine.OpRead {
		r.all.Add(1)
	}
	return engine.Verdict{}
}

// resize splits or merges the tablets of the outbox; the new streams begin after in.
func (w *world) resize(merge bool, in time.Duration) {
	w.t.Helper()
	if _, err := w.db.Faults().Node().Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", Merge: merge, In: in}); err != nil {
		w.t.Fatal(err)
	}
}

// Tablets split and merge as a node did while others joined and left: generations of 0.7 s, three
// pending at a time, five in three minutes, and the ended ones vanish after the ttl of the log.
// Relays are stopped, killed and away for longer than some generations are listed.
func TestTablets_ShortGenerations(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(8)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { testShortGenerations(t, seed) })
		})
	}
}

func testShortGenerations(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 'g'))
	hook := new(reads)
	w := newWorld(t, scyllafake.Config{Hook: hook, TabletInterval: time.Hour}, func(c *Config) {
		wideWindow(c)
		if seed%2 == 1 {
			c.Tail = TailOff
		}
	})
	defer w.close()
	w.exec("ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': 600}")
	time.Sleep(time.Minute)
	_, stop := w.run()
	all := relaytest.Events(10, 150, "OrderUpdated")
	const every = 500 * time.Millisecond
	tablets, busy := 16, int64(0)
	for i, e := range all {
		w.write(e)
		time.Sleep(every)
		switch {
		case i%70 == 30: // five in three minutes
			in := announced
			for range 1 + rnd.IntN(3) {
				merge := tablets > 2 && (tablets >= 64 || rnd.IntN(2) == 0)
				w.resize(merge, in)
				in += []time.Duration{700 * time.Millisecond, 1900 * time.Millisecond}[rnd.IntN(2)]
				if tablets *= 2; merge {
					tablets /= 4
				}
			}
		case i%300 == 150:
			if err := stop(); err != nil {
				t.Error(err)
			}
			if rnd.IntN(2) == 0 {
				w.crashAfter(time.Duration(rnd.IntN(int(3 * time.Minute))))
			}
			time.Sleep(time.Duration(rnd.IntN(int(4 * time.Minute))))
			_, stop = w.run()
		case i%100 == 99:
			busy = max(busy, hook.all.Load())
			w.db.BalanceTablets() // removes ended generations
		}
		if i%100 == 99 {
			hook.all.Store(0)
		}
	}
	time.Sleep(10 * time.Minute)
	if err := stop(); err != nil {
		t.Error(err)
	}
	got := w.consume("OrderUpdated")
	relaytest.CheckOrder(t, got, all)
	relaytest.CheckTimes(t, got)
	// Up to 64 streams of the sweep reader, and a few queries of the tail reader for each of up
	// to ten generations within the confidence window.
	if most := 120 * int64(100*every/time.Second); busy == 0 || busy > most {
		t.Errorf("%d reads for 100 events, want at most %d", busy, most)
	}
}

// A generation vanishes, or is not known to another node yet, between the two queries of
// scylla-cdc-go for its start and its streams. The reader starts again.
func TestTablets_AGenerationWithoutStreams(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		hook := &vanishing{}
		w := newWorld(t, scyllafake.Config{Hook: hook, TabletInterval: time.Hour}, func(c *Config) {
			wideWindow(c)
			c.Tail = TailOff
		})
		defer w.close()
		w.exec("ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': 600}")
		w.resize(true, announced)
		time.Sleep(20 * time.Minute) // the first generation has ended and is about to be removed
		all := relaytest.Events(4, 3, "OrderUpdated")
		for _, e := range all[:4] {
			w.write(e)
		}
		hook.remove = w.db.BalanceTablets
		w.cfg.FirstAge = time.Hour
		r, stop := w.run()
		for _, e := range all[4:] {
			time.Sleep(10 * time.Second)
			w.write(e)
		}
		time.Sleep(10 * time.Minute)
		if hook.removed.Load() == 0 || r.Status().Restarts == 0 {
			t.Errorf("generations were removed %d times during a query, the reader began %d times again", hook.removed.Load(), r.Status().Restarts)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// vanishing removes ended generations once before their streams are read.
type vanishing struct {
	remove  func()
	removed atomic.Int64
}

// Before implements engine.Hook.
func (v *vanishing) Before(_ context.Context, op engine.Op) engine.Verdict {
	if v.remove != nil && op.Table == "cdc_streams" && v.removed.Add(1) == 1 {
		v.remove()
	}
	return engine.Verdict{}
}

// A relay holds its events for so long that generations end and vanish, with rows of the log,
// before it begins them.
func TestTablets_GenerationsVanishWhileTheRelayHolds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{TabletInterval: time.Hour}, func(c *Config) {
			wideWindow(c)
			c.WhenOpen = WhenOpenHold
		})
		defer w.close()
		w.exec("ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': 1200}")
		_, stop := w.run()
		time.Sleep(3 * time.Minute)
		all := relaytest.Events(4, 11, "OrderUpdated")
		end := w.brokerOutage()
		for i, e := range all[:40] {
			w.write(e)
			if i >= 8 && i < 14 {
				w.resize(i%2 == 1, announced+time.Duration(i)*time.Second)
			}
			time.Sleep(5 * time.Second)
		}
		for range 4 {
			time.Sleep(10 * time.Minute)
			w.db.BalanceTablets()
		}
		if n := w.count("SELECT count(*) FROM system.cdc_timestamps WHERE keyspace_name = 'outbox' AND table_name = 'outbox_messages'"); n != 1 {
			t.Errorf("%d generations are listed, want the last one", n)
		}
		end()
		time.Sleep(20 * time.Minute)
		for _, e := range all[40:] {
			w.write(e)
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.once(all, "OrderUpdated")
	})
}

// Checkpoints of generations that ended long ago are removed.
func TestTablets_CheckpointsOfEndedGenerations(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{TabletInterval: time.Hour}, wideWindow)
		defer w.close()
		all := relaytest.Events(1, 20, "OrderUpdated")
		for i, e := range all {
			_, stop := w.run()
			w.write(e)
			w.resize(i%2 == 0, announced)
			time.Sleep(10 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			time.Sleep(6 * time.Hour)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
		// The checkpoints of a day, and of the generation before and after.
		if n := w.count("SELECT count(*) FROM relay_checkpoints"); n == 0 || n > 6*16 {
			t.Errorf("%d checkpoints, want those of 6 generations at most", n)
		}
	})
}

// The checkpoints of a generation that lived for weeks are kept for a day after its end, for shards
// of another number that are still in it.
func TestCheckpoints_OfALongGenerationAreKept(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{}, nil)
		defer w.close()
		store := checkpoint.NewCQLStore(w.session, "outbox", Defaults().Name, "outbox.outbox_messages", Defaults().Name, nil, time.Minute)
		day := 24 * time.Hour
		began := time.Now().Truncate(time.Second)
		positions := func(generation time.Time) int {
			t.Helper()
			found, err := store.Positions(t.Context(), generation)
			if err != nil {
				t.Fatal(err)
			}
			return len(found)
		}
		begin := func(after time.Duration) time.Time {
			t.Helper()
			generation := began.Add(after)
			if err := store.SaveGeneration(t.Context(), generation); err != nil {
				t.Fatal(err)
			}
			if err := store.SavePosition(t.Context(), generation, []byte{1}, gocql.MinTimeUUID(generation)); err != nil {
				t.Fatal(err)
			}
			return generation
		}
		long := begin(0)
		short := begin(30 * day)
		if positions(long) != 1 {
			t.Error("the checkpoints of a generation are removed when it ends")
		}
		next := begin(30*day + 12*time.Hour)
		if positions(long) != 1 || positions(short) != 1 {
			t.Error("checkpoints are removed half a day after the end of their generation")
		}
		begin(31*day + time.Hour)
		if positions(long) != 0 || positions(short) != 1 || positions(next) != 1 {
			t.Errorf("%d, %d and %d checkpoints, want none of the first generation, which ended more than a day before", positions(long), positions(short), positions(next))
		}
	})
}

// Three generations are pending when the reader of the log fails, whichever call of it. The relay
// ends if the error is fatal, and otherwise the reader starts again.
func TestTablets_ReaderFailsWhileGenerationsArePending(t *testing.T) {
	t.Parallel()
	writes := []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch}
	refused := faults.Effect{Failure: faults.Refuse(cqlerr.Unauthorized, "")}
	var began atomic.Bool // the first generation is saved
	for name, rule := range map[string]faults.Rule{
		"the generation cannot be saved": {Match: faults.Match{Table: "relay_checkpoints", Kinds: writes}, Effect: refused},
		"a position cannot be read": {Skip: 1, Match: faults.Match{Table: "relay_checkpoints", Func: func(op engine.Op) bool {
			return began.Load() || slices.Contains(writes, op.Kind) && !began.CompareAndSwap(false, true)
		}}, Effect: refused},
		"the log is missing": {
			Match:  faults.Match{Table: "outbox_messages_scylla_cdc_log"},
			Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Server, "unconfigured table")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{TabletInterval: time.Hour}, func(c *Config) {
					wideWindow(c)
					c.Tail = TailOff
				})
				defer w.close()
				w.crashAfter(5 * time.Minute)
				for i := range 3 {
					w.resize(i == 1, announced+time.Duration(i)*time.Minute)
				}
				time.Sleep(10 * time.Minute)
				id := w.db.Faults().MustAdd(rule)
				cfg := w.cfg
				cfg.Session, cfg.Registerer = w.session, nil
				r, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				time.Sleep(10 * time.Minute)
				if rule.Effect.Failure == refused.Failure {
					select {
					case err := <-done:
						if err == nil || failure.Classify(err) != failure.Fatal {
							t.Errorf("Run() error = %v, want a fatal one", err)
						}
					default:
						t.Fatal("the relay does not end")
					}
					return
				}
				if r.Status().Restarts == 0 {
					t.Error("the reader was not started again")
				}
				if err := w.db.Faults().Remove(id); err != nil {
					t.Fatal(err)
				}
				e := relaytest.Event(1, 1, "OrderUpdated")
				w.write(e)
				time.Sleep(10 * time.Minute)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				w.once([]outbox.Event{e}, "OrderUpdated")
			})
		})
	}
}
