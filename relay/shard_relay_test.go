package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// shardEngines are the two ways in which a database has streams, and how they change.
var shardEngines = []struct {
	name   string
	conf   scyllafake.Config
	change func(n *faults.Node) error
}{
	{
		"vnodes",
		scyllafake.Config{Version: "5.1", Tokens: 5},
		func(n *faults.Node) error {
			_, err := n.NewGeneration(faults.Generation{In: 12 * time.Second, ExtraTokens: 4})
			return err
		},
	},
	{
		"tablets",
		scyllafake.Config{},
		func(n *faults.Node) error {
			_, err := n.Resize(faults.Resize{Keyspace: "outbox", Table: "outbox_messages", In: 12 * time.Second})
			return err
		},
	},
}

// runShard runs the relay of a shard until stop, which waits for its end.
func (w *world) runShard(s Shard) (r *Relay, stop func()) {
	w.t.Helper()
	cfg := w.cfg
	cfg.Session, cfg.Registerer, cfg.Shard = w.session, nil, s
	r, err := New(cfg)
	if err != nil {
		w.t.Fatalf("New() error = %v", err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run() of %+v: %v", s, err)
		}
	}
}

// runShards runs all relays of a number of shards, or the one of the whole table.
func (w *world) runShards(count int) (all []*Relay, stop func()) {
	w.t.Helper()
	var stops []func()
	cfg := w.cfg
	defer func() { w.cfg = cfg }()
	w.cfg.Process = new(Process)
	for i := range max(count, 1) {
		r, stop := w.runShard(Shard{Index: i, Count: count})
		all, stops = append(all, r), append(stops, stop)
	}
	return all, func() {
		w.t.Helper()
		for _, stop := range stops {
			stop()
		}
	}
}

// A relay that is made and never run, because another one of its process could not be
// made, leaves no metrics, so the shard can be carried later.
func TestShards_OneThatNeverRunsLeavesNoMetrics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		cfg := w.cfg
		reg := prometheus.NewRegistry()
		cfg.Session, cfg.Shard, cfg.Registerer = w.session, Shard{Index: 1, Count: 4}, reg
		for range 2 {
			if _, err := New(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := reg.Gather(); err != nil || len(all) != 0 {
			t.Errorf("%d metrics are left, %v", len(all), err)
		}
	})
}

// Shards of a process have equal shares of its limits as long as they run, and metrics and
// status show them. One that has no part of the table takes no share.
func TestProcess_DividesItsLimitsAmongThoseThatRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		key   string // of a table of its own
		parts int    // of two shards, in which the limits are
	}{{"by aggregate", "", 2}, {"by event", "id", 1}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				const events, aggregates = 100_000, 50_000
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.Process, c.DedupMemory, c.MaxAggregates = new(Process), events*dedup.BytesPerEvent, aggregates
					if tt.key != "" {
						debezium(c)
						c.Mapping.Unordered = true
					}
				})
				defer w.close()
				if tt.key != "" {
					w.ownTable(tt.key, " WITH cdc = {'enabled': true}")
				}
				check := func(what string, r *Relay, parts int) {
					t.Helper()
					time.Sleep(10 * time.Second)
					if got := r.Status().Tail.UnsweptLimit; got != events/parts {
						t.Errorf("%s: %d events at most, want %d", what, got, events/parts)
					}
					if got := r.cfg.place().share.Aggregates(); got != aggregates/parts {
						t.Errorf("%s: %d aggregates at most, want %d", what, got, aggregates/parts)
					}
					reg := prometheus.NewRegistry()
					registerState(reg, r)
					if err := testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`# HELP outbox_relay_dedup_fresh_limit Maximum of outbox_relay_dedup_fresh_events; at the limit the tail reader waits for the sweep reader.
# TYPE outbox_relay_dedup_fresh_limit gauge
outbox_relay_dedup_fresh_limit %d
`, events/parts)), "outbox_relay_dedup_fresh_limit"); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
				first, stopFirst := w.runShard(Shard{Index: 0, Count: 16})
				check("a shard alone", first, 1)
				second, stopSecond := w.runShard(Shard{Index: 1, Count: 16})
				check("the first of two", first, tt.parts)
				if second.Status().Idle != (tt.parts == 1) {
					t.Errorf("the second is idle = %t", second.Status().Idle)
				}
				if tt.parts == 2 {
					check("the second", second, 2)
				}
				stopSecond()
				check("the one that is left", first, 1)
				stopFirst()
				if n := w.cfg.Process.pool.Shards(); n != 0 {
					t.Errorf("%d shards share the limits when all have ended", n)
				}
			})
		})
	}
}

// Shards side by side carry each their own, and nothing else, while streams change.
func TestShards_CarryEachTheirOwn(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range shardEngines {
		for _, tail := range []string{TailOn, TailOff} {
			t.Run(tt.name+" tail "+tail, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, tt.conf, func(c *Config) {
						c.Tail, c.GenerationDelay = tail, 3*time.Second
					})
					defer w.close()
					all := relaytest.Events(30, 10, "OrderCreated", "OrderUpdated")
					for _, e := range all[:30] {
						w.write(e) // before any of them runs
					}
					relays, stop := w.runShards(3)
					for i, e := range all[30:] {
						if i == 60 {
							if err := tt.change(w.db.Faults().Node()); err != nil {
								t.Fatal(err)
							}
						}
						w.write(e)
						time.Sleep(200 * time.Millisecond)
					}
					time.Sleep(time.Minute)
					relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
					g, err := cdclog.NewGenerations(relays[0].cfg.Session, relays[0].cfg.TableKeyspace, relays[0].cfg.Table, nil).Times(t.Context())
					if err != nil || len(g) < 2 {
						t.Fatalf("there are %d generations, %v", len(g), err)
					}
					parts := 0 // of streams
					for i, r := range relays {
						own := 0
						for _, e := range all {
							if r.own.HasAggregate(e.AggregateID) {
								own++
							}
						}
						if n := int(sum(r.metrics.Published)); n != own || own == 0 {
							t.Errorf("shard %d published %d events, want %d", i, n, own)
						}
						if late := relaytest.Count(r.metrics.Late); late != 0 {
							t.Errorf("shard %d published %v events late", i, late)
						}
						s := r.Status()
						generation, _, _ := r.streams.HandedAll()
						whole, err := cdclog.NewGenerations(r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table, nil).Generation(t.Context(), generation)
						if err != nil {
							t.Fatal(err)
						}
						tokens := []int64{r.own.Tokens.After + 1, r.own.Tokens.UpTo}
						for _, other := range whole.Ranges {
							tokens = append(tokens, other.End, other.End+1)
						}
						mine := make(map[int]bool)
						for _, token := range tokens {
							if !r.own.Tokens.Has(token) {
								continue
							}
							for _, stream := range whole.StreamsFor(token) {
								mine[stream] = true
							}
						}
						parts += len(mine)
						if most := len(whole.Streams) + len(relays); parts > most { // each end of a shard cuts one
							t.Errorf("shards up to %d read %d streams in all, want at most %d", i, parts, most)
						}
						if len(s.Problems) > 0 || s.Streams != len(mine) || tail == TailOn && s.Tail.Streams != len(mine) {
							t.Errorf("shard %d reads %d streams, want %d of %d; tail %+v, problems %q", i, s.Streams, len(mine), len(whole.Streams), s.Tail, s.Problems)
						}
						for _, a := range []int{int(relaytest.Count(r.metrics.capture.Gaps)), s.DeadLetters} {
							if a != 0 {
								t.Errorf("shard %d: %d gaps or dead letters", i, a)
							}
						}
						if n := r.publisher.Load().State().Aggregates; n > own/10 {
							t.Errorf("shard %d remembers %d aggregates, and has %d", i, n, own/10)
						}
					}
					stop()
				})
			})
		}
	}
}

// The number of shards changes, and changes back: nothing is lost or repeated, and
// each aggregate's events stay in sequence.
func TestShards_ChangeTheirNumber(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range shardEngines {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, tt.conf, func(c *Config) {
					c.GenerationDelay = 3 * time.Second
					c.DrainTimeout = time.Millisecond // as good as killed
				})
				defer w.close()
				all := relaytest.Events(20, 24, "OrderCreated", "OrderUpdated")
				next := 0
				write := func(n int, pause time.Duration) {
					t.Helper()
					for ; n > 0; n-- {
						w.write(all[next])
						next++
						time.Sleep(pause)
					}
				}
				for i, count := range []int{0, 3, 2, 0, 3, 0} {
					_, stop := w.runShards(count)
					if i == 2 {
						if err := tt.change(w.db.Faults().Node()); err != nil {
							t.Fatal(err)
						}
					}
					write(60, 300*time.Millisecond)
					if i == 4 { // all go, and come back
						stop()
						_, stop = w.runShards(count)
						write(10, 100*time.Millisecond)
					}
					stop()
					write(10, 10*time.Millisecond)
				}
				_, stop := w.runShards(0)
				write(len(all)-next, 10*time.Millisecond)
				time.Sleep(time.Minute)
				stop()
				got := w.consume("OrderCreated", "OrderUpdated")
				relaytest.CheckOrder(t, got, all)
				relaytest.CheckTimes(t, got)
			})
		})
	}
}

// However the number of shards changes, a relay resumes where the relays before it stopped in the
// table, not from where its own name was last, or from the very beginning.
func TestShards_ResumeWhereOthersStopped(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range shardEngines {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, tt.conf, func(c *Config) {
					c.GenerationDelay, c.IdleCheckpoint, c.Tail = 3*time.Second, 5*time.Second, TailOff
				})
				defer w.close()
				seq := int64(0)
				for i, count := range []int{0, 3, 2, 0} {
					began := time.Now()
					relays, stop := w.runShards(count)
					if i == 1 || i == 3 {
						if err := tt.change(w.db.Faults().Node()); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(30 * time.Second)
					for range 10 {
						seq++
						w.write(relaytest.Event(1, seq, "OrderUpdated"))
						w.write(relaytest.Event(2, seq, "OrderUpdated"))
					}
					time.Sleep(2 * time.Minute)
					stop()
					for _, r := range relays {
						if from := r.readback.Load().Position; i > 0 && began.Sub(from) > time.Minute {
							t.Errorf("layout %d: %q of %d shards goes on at %s, and began at %s", i, r.cfg.shardName(), count, from, began)
						}
					}
				}
				if n := len(w.consume("OrderUpdated")); int64(n) != 2*seq {
					t.Errorf("%d records, want %d", n, 2*seq)
				}
			})
		})
	}
}

// One shard is behind the others when their number changes, by a generation of streams or within
// one: the shards after it resume where that one was.
func TestShards_OneIsBehindWhenTheirNumberChanges(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tt := range shardEngines {
		for _, change := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, " change=", change), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, tt.conf, func(c *Config) { c.GenerationDelay = 3 * time.Second })
					defer w.close()
					all := relaytest.Events(100, 1, "OrderCreated") // no later one shows that an event was passed over
					_, stop0 := w.runShard(Shard{Index: 0, Count: 3})
					_, stop1 := w.runShard(Shard{Index: 1, Count: 3})
					_, stop2 := w.runShard(Shard{Index: 2, Count: 3})
					time.Sleep(20 * time.Second)
					stop1()
					if change {
						if err := tt.change(w.db.Faults().Node()); err != nil {
							t.Fatal(err)
						}
					}
					for _, e := range all {
						w.write(e)
						time.Sleep(500 * time.Millisecond)
					}
					stop0()
					stop2()
					_, stop := w.runShards(2)
					time.Sleep(time.Minute)
					stop()
					relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
				})
			})
		}
	}
}
