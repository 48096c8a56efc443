package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

const (
	cdcOff  = "ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': false}"
	cdcOn   = "ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': 259200}"
	dropLog = "DROP TABLE outbox.outbox_messages_scylla_cdc_log"
)

// logChanges are what may be done to the CDC log of a table, with the time between the
// statements. Events are written before and after each statement.
var logChanges = []struct {
	name       string
	wait       time.Duration
	statements []string
}{
	{"off and on at once", 0, []string{cdcOff, cdcOn}},
	{"off and on", 20 * time.Second, []string{cdcOff, cdcOn}},
	{"off and on, for minutes", 5 * time.Minute, []string{cdcOff, cdcOn}},
	{"off and on twice", 7 * time.Second, []string{cdcOff, cdcOn, cdcOff, cdcOn}},
	{"off and on with another TTL", time.Second, []string{cdcOff, "ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': 172800}"}},
	{"off, a column, and on", 0, []string{cdcOff, "ALTER TABLE outbox.outbox_messages ADD note text", cdcOn}},
	{"log dropped and created", 10 * time.Second, []string{cdcOff, dropLog, cdcOn}},
	{"log dropped and created at once", 0, []string{cdcOff, dropLog, cdcOn}},
	{"keys only for a while", 20 * time.Second, []string{"ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'delta': 'keys'}", cdcOn}},
}

// Events that the CDC log does not have are found in the table: while the relay runs, is
// stopped, or is killed before and after it finds out.
func TestRelay_CDCLogLacksEvents(t *testing.T) {
	t.Parallel()
	for _, tablets := range []bool{false, true} {
		for _, tt := range logChanges {
			for _, during := range []string{"running", "stopped", "killed"} {
				t.Run(tt.name+"/"+during+map[bool]string{true: "/tablets"}[tablets], func(t *testing.T) {
					t.Parallel()
					if tablets != (during == "running") {
						relaytest.Long(t)
					}
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, logEngine(tablets), func(c *Config) {
							c.ConfidenceWindow, c.IdleCheckpoint = 30*time.Second, 5*time.Second
						})
						defer w.close()
						topics := []string{"OrderCreated", "OrderUpdated"}
						all := relaytest.Events(40, 2, topics...)
						next, behind := 0, 28*time.Second // clocks of writers, within the confidence window
						if slices.Contains(tt.statements, dropLog) {
							behind = 0 // a new log refuses rows that are dated before it
						}
						write := func() {
							for n := range 10 {
								if next < len(all) {
									w.writeAt(all[next], time.Now().Add(-behind*time.Duration(n%2)))
									next++
								}
							}
						}
						time.Sleep(time.Minute)
						_, stop := w.run()
						write()
						time.Sleep(time.Minute)
						if during == "stopped" {
							write()
							if err := stop(); err != nil {
								t.Error(err)
							}
						}
						for _, stmt := range tt.statements {
							write()
							time.Sleep(tt.wait)
							w.exec(stmt)
						}
						write()
						switch during {
						case "killed":
							if err := stop(); err != nil {
								t.Error(err)
							}
							w.crashAfter(20 * time.Second)
							w.crashAfter(45 * time.Second)
							fallthrough
						case "stopped":
							time.Sleep(time.Minute)
							_, stop = w.run()
						}
						time.Sleep(2 * time.Minute)
						write()
						time.Sleep(2 * time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						_, stop = w.run() // nothing is repeated
						time.Sleep(time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						w.once(all[:next], topics...)
						if n := len(w.backfills()); n > 3 {
							t.Errorf("%d scans, want one", n-1)
						}
					})
				})
			}
		}
	}
}

// The clocks of writers are ahead, so rows that they write while CDC is off have write times of
// after it is on again. ScyllaDB refuses such times only while CDC is on.
func TestRelay_WritersAreAheadWhileCDCIsOff(t *testing.T) {
	t.Parallel()
	for _, during := range []string{"running", "stopped", "first start"} {
		t.Run(during, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.IdleCheckpoint = 30*time.Second, 5*time.Second
				})
				defer w.close()
				all := relaytest.Events(20, 1, "OrderCreated")
				stop := func() error { return nil }
				time.Sleep(time.Minute)
				if during != "first start" {
					_, stop = w.run()
					time.Sleep(time.Minute)
				}
				if during != "running" {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				w.exec(cdcOff)
				for i, e := range all {
					w.writeAt(e, time.Now().Add(time.Duration(i+5)*time.Second))
					time.Sleep(20 * time.Millisecond)
				}
				w.exec(cdcOn)
				if during != "running" {
					_, stop = w.run()
				}
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.once(all, "OrderCreated")
			})
		})
	}
}

// A relay that cannot read its topics starts after the log was dropped. The events that no log has
// are published in their order all the same: before the later ones of their aggregates, which the
// new log has, although the scan begins minutes later.
func TestRelay_CDCLogLacksEventsAndTopicsAreNotRead(t *testing.T) {
	t.Parallel()
	for _, denied := range []bool{false, true} {
		t.Run(fmt.Sprint("denied=", denied), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				readable := func() {}
				if denied {
					readable = w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
				} else {
					w.cfg.ReadBackMargin = -1
				}
				time.Sleep(time.Minute)
				_, stop := w.run()
				all := relaytest.Events(10, 3, "OrderCreated")
				write := func(seq int64) {
					for _, e := range all {
						if e.Sequence == seq {
							w.write(e)
						}
					}
				}
				write(1)
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.exec(cdcOff)
				w.exec(dropLog)
				write(2)
				time.Sleep(2 * time.Minute)
				w.exec(cdcOn)
				_, stop = w.run()
				time.Sleep(time.Minute)
				write(3)
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				readable()
				seen := make(map[gocql.UUID]bool)
				last := make(map[gocql.UUID]int64)
				for _, d := range w.consume("OrderCreated") {
					if seen[d.ID.UUID()] {
						continue
					}
					if seen[d.ID.UUID()] = true; d.Sequence != last[d.AggregateID.UUID()]+1 {
						t.Errorf("event %d of %s follows %d", d.Sequence, d.AggregateID, last[d.AggregateID.UUID()])
					}
					last[d.AggregateID.UUID()] = d.Sequence
				}
				if len(seen) != len(all) {
					t.Errorf("%d of %d events are published", len(seen), len(all))
				}
			})
		})
	}
}

func logEngine(tablets bool) scyllafake.Config {
	if tablets {
		return scyllafake.Config{}
	}
	return scyllafake.Config{Version: "5.1", Tokens: 4}
}

// A relay that starts while CDC is off, or without the log, ends with the statement that repairs
// it. After this statement the next start finds every event.
func TestRelay_StartsWhileCDCIsOff(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		for _, statements := range [][]string{{cdcOff}, {cdcOff, dropLog}} {
			t.Run(fmt.Sprintf("first start %t, log dropped %t", first, len(statements) > 1), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.IdleCheckpoint = 30*time.Second, 5*time.Second })
					defer w.close()
					const topic = "OrderUpdated"
					var all []outbox.Event
					write := func() {
						for range 5 {
							e := relaytest.Event(len(all), 1, topic)
							all = append(all, e)
							w.write(e)
						}
					}
					time.Sleep(time.Minute)
					if !first {
						_, stop := w.run()
						write()
						time.Sleep(time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
					write()
					for _, stmt := range statements {
						w.exec(stmt)
						write()
					}
					err := w.runRefused()
					bad, ok := errors.AsType[*outbox.MappingError](err)
					if !ok || !strings.HasPrefix(bad.Fix, "ALTER TABLE outbox.outbox_messages WITH cdc = ") {
						t.Fatalf("Run() error = %v, want the statement that enables CDC", err)
					}
					write()
					time.Sleep(time.Minute)
					w.exec(bad.Fix)
					write()
					_, stop := w.run()
					time.Sleep(3 * time.Minute)
					write()
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.once(all, topic)
				})
			})
		}
	}
}

// The ttl of the CDC log is another one when the relay comes back. Rows keep the ttl with
// which they were written.
func TestRelay_CDCTTLChangedWhileAway(t *testing.T) {
	t.Parallel()
	ttl := func(seconds string) string {
		return "ALTER TABLE outbox.outbox_messages WITH cdc = {'enabled': true, 'ttl': " + seconds + "}"
	}
	for name, statements := range map[string][]string{
		"not changed":       {},
		"raised":            {ttl("604800")},
		"off":               {ttl("0")},
		"lowered":           {ttl("7200")},
		"lowered, raised":   {ttl("60"), ttl("604800")},
		"lowered and again": {ttl("60"), ttl("259200")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.IdleCheckpoint = 5 * time.Second })
				defer w.close()
				topics := []string{"OrderCreated", "OrderUpdated"}
				all := relaytest.Events(20, 4, topics...)
				time.Sleep(time.Minute)
				_, stop := w.run()
				for _, e := range all[:40] {
					w.write(e)
				}
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				for _, e := range all[40:60] {
					w.write(e)
				}
				time.Sleep(44 * time.Hour)
				for i, stmt := range statements {
					w.exec(stmt)
					for _, e := range all[60+10*i : 70+10*i] {
						w.write(e)
					}
					time.Sleep(2 * time.Hour)
				}
				time.Sleep(32 * time.Hour) // rows of the first hours have expired in the log, not in the table
				_, stop = w.run()
				time.Sleep(20 * time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.once(all[:60+10*len(statements)], topics...)
			})
		})
	}
}

// A table that cannot be scanned has lost the events of the time without CDC: the relay
// reports the time, on /readyz, in its log and as a metric.
func TestRelay_ReportsEventsThatTheCDCLogLacks(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{0, time.Second, 20 * time.Second} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 1}, func(c *Config) { debezium(c); c.ConfidenceWindow = 30 * time.Second })
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				said := w.logToBuffer()
				r, stop := w.run()
				insert := func(aggregate string) {
					w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')", aggregate, gocql.TimeUUID())
				}
				time.Sleep(10 * time.Second)
				w.exec("ALTER TABLE shop.events WITH cdc = {'enabled': false}")
				insert("while-off")
				time.Sleep(off)
				w.exec("ALTER TABLE shop.events WITH cdc = {'enabled': true}")
				insert("after")
				time.Sleep(75 * time.Second)
				if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, "the CDC log may lack events written from") {
					t.Errorf("problems = %q, want the time of the lost events", p)
				}
				if !strings.Contains(said.String(), "events of that time are in the table only") {
					t.Errorf("nothing is logged:\n%s", said)
				}
				if n := relaytest.Count(r.metrics.logGaps); n != 1 {
					t.Errorf("%v gaps are counted, want 1", n)
				}
				// Another column explains an alteration.
				time.Sleep(gapReported)
				w.exec("ALTER TABLE shop.events ADD note text")
				time.Sleep(10 * time.Second)
				if p := r.Status().Problems; len(p) != 0 {
					t.Errorf("problems = %q after a column was added, want none", p)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A table that was dropped is awaited where the process has relays of other tables, and
// carried again once it is there.
func TestRelay_AwaitsADroppedTable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, func(c *Config) { debezium(c); c.AwaitTable = true })
		defer w.close()
		insert := func() {
			w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'order', 'Placed', '{}')", gocql.TimeUUID())
		}
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		r, stop := w.run()
		insert()
		time.Sleep(10 * time.Second)
		for range 2 { // under the relay that runs, and before the next one
			w.exec("DROP TABLE shop.events")
			time.Sleep(time.Minute)
			if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, "shop.events does not exist") {
				t.Errorf("problems = %q, want that the table does not exist", p)
			}
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
			r, stop = w.run()
			time.Sleep(time.Minute)
			if p := strings.Join(r.Status().Problems, "; "); !strings.Contains(p, "shop.events does not exist") {
				t.Errorf("problems = %q after a start, want that the table does not exist", p)
			}
			w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
			time.Sleep(time.Minute)
			insert()
			time.Sleep(time.Minute)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if n := len(w.consume("outbox.event.order")); n != 3 {
			t.Errorf("%d events in the topic, want those of three tables", n)
		}
	})
}

// The log is dropped and created while no relay runs, and the next start cannot read its topics for
// longer than the confidence window, so that it decides about a scan a second time. The sweep reader
// reads the new log all the same.
func TestRelay_LogDroppedBeforeAStartOfMinutes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.ConfidenceWindow, c.IdleCheckpoint, c.Tail = 30*time.Second, 5*time.Second, TailOff
		})
		defer w.close()
		const topic = "OrderUpdated"
		var all []outbox.Event
		write := func() {
			for range 5 {
				all = append(all, relaytest.Event(len(all), 1, topic))
				w.write(all[len(all)-1])
			}
		}
		_, stop := w.run()
		write()
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, stmt := range []string{cdcOff, dropLog, cdcOn} {
			write()
			w.exec(stmt)
		}
		time.Sleep(5 * time.Second)
		reached := w.unreachable()
		r, stop := w.run()
		write()
		time.Sleep(3 * time.Minute)
		reached()
		time.Sleep(2 * time.Minute)
		write()
		time.Sleep(2 * time.Minute)
		if s := r.Status(); len(s.Problems) > 0 {
			t.Errorf("the relay reports %q", s.Problems)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.once(all, topic)
	})
}
