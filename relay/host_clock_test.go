package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// positions calls each for each saved position, as it is stored.
func (w *world) positions(each func(pos time.Time)) {
	w.t.Helper()
	iter := w.session.Query("SELECT position FROM relay_checkpoints WHERE relay = ? AND table_name = ?", w.cfg.Name, "outbox."+w.cfg.Table).Iter()
	var pos *gocql.UUID
	for iter.Scan(&pos) {
		if pos != nil {
			each(pos.Time())
		}
	}
	if err := iter.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// The clock of the host is ahead of the database's or behind it, from the start or because it is
// set while the relay runs. Events are published immediately, also events that become visible late,
// and none twice; no position passes the database's time minus the window.
func TestRelay_HostClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, 10 * time.Second, 90 * time.Second, time.Hour, -10 * time.Second, -90 * time.Second, -time.Hour} {
		for _, set := range []bool{false, true} {
			t.Run(fmt.Sprintf("ahead=%s/set=%t", ahead, set), func(t *testing.T) {
				t.Parallel()
				if set != (ahead > time.Minute) {
					relaytest.Long(t)
				}
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
					defer w.close()
					clock := w.db.Faults().Clock()
					const topic = "OrderCreated"
					time.Sleep(2 * time.Hour)
					// Only a host's clock that is set back can be simulated, by the database's
					// that is set forward.
					before, after := ahead, ahead
					switch {
					case set && ahead > 0:
						after = 0
					case set:
						before = 0
					}
					clock.SetSkew(-before)
					r, stop := w.run()
					var all []outbox.Event
					late := func() {
						e := relaytest.Event(len(all), 1, topic)
						all = append(all, e)
						w.writeAt(e, clock.Now().Add(-20*time.Second))
					}
					write := func(n int) {
						for range n {
							e := relaytest.Event(len(all), 1, topic)
							all = append(all, e)
							w.writeAt(e, clock.Now())
							time.Sleep(time.Second)
						}
						late()
					}
					write(60)
					clock.SetSkew(-after)
					time.Sleep(20 * time.Second) // three measurements
					if p := strings.Join(r.Status().Problems, "; "); strings.Contains(p, "clock of this host") != (after != 0) {
						t.Errorf("problems = %q with a clock that is %s ahead", p, after)
					}
					write(60)
					time.Sleep(5 * time.Second)
					if n := len(w.consume(topic)); n < len(all)-2 {
						t.Errorf("%d of %d events are in the topic at once", n, len(all)-2)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run()
					write(10)
					time.Sleep(5 * time.Minute)
					w.positions(func(pos time.Time) {
						if newest := clock.Now().Add(-w.cfg.ConfidenceWindow); pos.After(newest.Add(100 * time.Millisecond)) {
							t.Errorf("a position is %s after the database's time minus the window", pos.Sub(newest))
						}
					})
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topic)
				})
			})
		}
	}
}

// The clock of the host, which dates the records, is an hour behind the database's. The relay has
// forgotten an event and its aggregate: it publishes neither with the next one of the aggregate nor
// when its row is stored again.
func TestRelay_HostClockBehindAndForgotten(t *testing.T) {
	t.Parallel()
	const topic = "OrderCreated"
	for _, tail := range []string{TailOff, TailOn} {
		for _, restart := range []bool{false, true} { // between the event and what makes the relay forget it
			for _, again := range []bool{false, true} {
				t.Run(fmt.Sprintf("tail %s, restart %t, stored again %t", tail, restart, again), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
							wideWindow(c)
							c.Tail, c.MaxAggregates, c.DedupMemory = tail, 20, 40*dedup.BytesPerEvent
						})
						defer w.close()
						clock := w.db.Faults().Clock()
						clock.SetSkew(time.Hour)
						_, stop := w.run()
						time.Sleep(5 * time.Minute)
						var all []outbox.Event
						write := func(aggregate int, seq int64) {
							e := relaytest.Event(aggregate, seq, topic)
							e.CreatedAt = clock.Now()
							all = append(all, e)
							w.writeAt(e, clock.Now())
						}
						write(0, 1)
						write(0, 2)
						time.Sleep(5 * time.Second)
						if tail == TailOff {
							time.Sleep(w.cfg.ConfidenceWindow)
						}
						if restart {
							if err := stop(); err != nil {
								t.Error(err)
							}
							_, stop = w.run()
						}
						for i := range 120 {
							write(1+i, 1)
							time.Sleep(time.Second + time.Duration(i/60)*time.Minute)
						}
						if again {
							w.writeAt(all[1], clock.Now())
							time.Sleep(5 * time.Minute)
						}
						write(0, 3)
						time.Sleep(5 * time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						w.once(all, topic)
					})
				})
			}
		}
	}
}

// The clock of the host is an hour behind the database's. A start finds events in their topic and
// forgets them before the sweep reader has read their rows: the next events of their aggregates do
// not repeat them.
func TestRelay_HostClockBehindAfterAStart(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			wideWindow(c)
			c.MaxAggregates, c.DedupMemory = 5, 64*dedup.BytesPerEvent
		})
		defer w.close()
		clock := w.db.Faults().Clock()
		clock.SetSkew(time.Hour)
		const topic = "OrderCreated"
		var all []outbox.Event
		run := func(seq int64, rest time.Duration) {
			_, stop := w.run()
			time.Sleep(65 * time.Second)
			for i := range 45 {
				e := relaytest.Event(i, seq, topic)
				e.CreatedAt = clock.Now()
				all = append(all, e)
				w.writeAt(e, clock.Now())
			}
			time.Sleep(rest)
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		run(1, 5*time.Second)
		run(2, 5*time.Minute)
		w.once(all, topic)
	})
}

// A relay is away for nearly as long as the log keeps its rows, and the clock of its host is ahead. The library takes rows for expired by that clock: none is missed.
func TestRelay_LogExpiresByTheHostsClock(t *testing.T) {
	t.Parallel()
	const ttl = time.Hour
	for _, ahead := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute, 30 * time.Minute, 58 * time.Minute, 2 * time.Hour} {
		for _, away := range []time.Duration{20 * time.Minute, 48 * time.Minute, 52 * time.Minute} {
			t.Run(fmt.Sprintf("ahead=%s/away=%s", ahead, away), func(t *testing.T) {
				t.Parallel()
				if ahead != 10*time.Minute {
					relaytest.Long(t)
				}
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
						wideWindow(c)
						c.Tail = TailOff
					})
					defer w.close()
					w.exec(fmt.Sprintf("ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': %d}", int(ttl.Seconds())))
					const topic = "OrderCreated"
					clock := w.db.Faults().Clock()
					time.Sleep(3 * time.Hour)
					clock.SetSkew(-ahead)
					_, stop := w.run()
					time.Sleep(70 * time.Minute)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					var all []outbox.Event
					for began := time.Now(); time.Since(began) < away; time.Sleep(30 * time.Second) {
						e := relaytest.Event(len(all), 1, topic)
						all = append(all, e)
						w.writeAt(e, clock.Now())
					}
					_, stop = w.run()
					time.Sleep(40 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topic)
				})
			})
		}
	}
}

// The clock of one node is ahead of the others', and some measurements of the database's are that
// node's. The sweep reader alone publishes the events, and misses none.
func TestRelay_ClockOfOneNode(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(second int) bool{
		"measured once": func(second int) bool { return second == 30 },
		"twice":         func(second int) bool { return second == 30 || second == 36 },
		"in turns":      func(second int) bool { return second%15 == 0 },
		"mostly":        func(second int) bool { return second%2 == 0 },
	} {
		for _, ahead := range []time.Duration{10 * time.Minute, 5 * time.Hour} {
			t.Run(fmt.Sprintf("%s/ahead=%s", name, ahead), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 2*time.Minute, TailOff })
					defer w.close()
					const topic = "OrderCreated"
					r, stop := w.run()
					time.Sleep(5 * time.Minute)
					var all []outbox.Event
					for second := range 120 {
						if now := time.Now(); other(second) {
							r.cfg.clock.Add(dbclock.Measurement{Node: "another", Time: now.Add(ahead).Round(0), Read: now})
						}
						e := relaytest.Event(len(all), 1, topic)
						all = append(all, e)
						w.write(e)
						time.Sleep(time.Second)
					}
					time.Sleep(5 * time.Minute)
					if n := r.Status().Restarts; n > 0 {
						t.Errorf("the reader was started again %d times", n)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topic)
				})
			})
		}
	}
}

// Checkpoints that a host whose clock was ahead has saved are not believed.
func TestRelay_CheckpointsAhead(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, 1000 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
				defer w.close()
				const topic = "OrderCreated"
				_, stop := w.run()
				var all []outbox.Event
				write := func() {
					e := relaytest.Event(len(all), 1, topic)
					all = append(all, e)
					w.write(e)
				}
				for range 240 {
					write()
					time.Sleep(time.Second)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				store := checkpoint.NewCQLStore(w.session, "outbox", w.cfg.Name, "outbox."+w.cfg.Table, w.cfg.Name, nil, 0)
				gen, _, err := store.Start(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				g, err := cdclog.NewGenerations(w.session, "outbox", w.cfg.Table, nil).Generation(t.Context(), gen)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range g.Streams {
					if err := store.SavePosition(t.Context(), gen, s, gocql.MaxTimeUUID(time.Now().Add(by))); err != nil {
						t.Fatal(err)
					}
				}
				for range 30 { // while no relay runs
					write()
					time.Sleep(30 * time.Second)
				}
				_, stop = w.run()
				time.Sleep(20 * time.Second)
				late := relaytest.Event(len(all), 1, topic)
				all = append(all, late)
				w.writeAt(late, time.Now().Add(-20*time.Second))
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.once(all, topic)
			})
		})
	}
}
