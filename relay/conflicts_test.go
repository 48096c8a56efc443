package relay

import (
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
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// again returns an event of another life of an aggregate: its numbers begin again.
func again(aggregate int, seq int64, topic string) outbox.Event {
	e := relaytest.Event(aggregate, seq, topic)
	e.ID = outbox.NameID(e.ID.UUID(), "second life")
	return e
}

// consumeAgain returns the numbers of the records of aggregate 0 whose events are events of again.
func (w *world) consumeAgain(topic string) (numbers []int64) {
	for _, d := range w.consume(topic) {
		if d.ID == again(0, d.Sequence, topic).ID {
			numbers = append(numbers, d.Sequence)
		}
	}
	return numbers
}

// The numbers of an aggregate begin again with 1: the database was restored from a backup, or
// the service continues max(seq)+1 of rows that have expired. The new events are published in
// their order, and none overtakes the others; the relay reports it.
func TestConflicts_NumbersBeginAgain(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, restart := range []bool{false, true} {
			for _, gone := range []bool{false, true} {
				for _, pause := range []time.Duration{0, time.Second, time.Minute} {
					t.Run(fmt.Sprintf("tail=%s restart=%t gone=%t pause=%s", tail, restart, gone, pause), func(t *testing.T) {
						t.Parallel()
						inBubble(t, func(t *testing.T) {
							w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 2*time.Minute, tail })
							defer w.close()
							const topic = "OrderCreated"
							r, stop := w.run()
							for seq := range int64(5) {
								w.write(relaytest.Event(0, seq+1, topic))
								time.Sleep(time.Second)
							}
							time.Sleep(10 * time.Second)
							if gone {
								w.exec("DELETE FROM outbox_messages WHERE aggregate_id = ?", relaytest.Event(0, 1, topic).AggregateID)
							}
							if restart {
								if err := stop(); err != nil {
									t.Fatal(err)
								}
								r, stop = w.run()
								time.Sleep(10 * time.Second)
							}
							var want []int64
							for seq := range int64(9) {
								w.write(again(0, seq+1, topic))
								want = append(want, seq+1)
								time.Sleep(pause)
							}
							time.Sleep(10 * time.Minute)
							problems := strings.Join(r.Status().Problems, " ")
							conflicts := relaytest.Count(r.metrics.SequenceConflicts)
							if err := stop(); err != nil {
								t.Fatal(err)
							}
							if got := w.consumeAgain(topic); !slices.Equal(got, want) {
								t.Errorf("published %v, want %v", got, want)
							}
							if conflicts == 0 || !strings.Contains(problems, "events contradict each other") {
								t.Errorf("%v conflicts and problems %q, want both", conflicts, problems)
							}
						})
					})
				}
			}
		}
	}
}

// As above, where the sweep reader alone reads the events, with many others, and has forgotten their
// ids.
func TestConflicts_NumbersBeginAgainAmongManyEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 8}, func(c *Config) {
			c.ConfidenceWindow, c.Tail = 2*time.Minute, TailOff
			c.DedupMemory, c.MaxInFlightRecords = 200*dedup.BytesPerEvent, 20
		})
		defer w.close()
		const topic = "OrderCreated"
		r, stop := w.run()
		for seq := range int64(12) {
			w.write(relaytest.Event(0, seq+1, topic))
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		var want []int64
		for seq := range int64(9) {
			w.write(again(0, seq+1, topic))
			want = append(want, seq+1)
		}
		for i := range 1500 {
			w.write(relaytest.Event(100+i, 1, topic))
		}
		time.Sleep(20 * time.Minute)
		conflicts := relaytest.Count(r.metrics.SequenceConflicts)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if got := w.consumeAgain(topic); !slices.Equal(got, want) || conflicts == 0 {
			t.Errorf("published %v and reported %v conflicts, want %v and some", got, conflicts, want)
		}
	})
}

// A second event with the number of a published one is published and reported, and the later
// events of its aggregate follow.
func TestConflicts_NumberOfTwoEvents(t *testing.T) {
	t.Parallel()
	type variant struct {
		tail   string
		behind time.Duration // the clock of the second event's writer, which writes at the same time
		reads  string        // "", "off" by its setting, or "denied" by the broker
		after  time.Duration // from the relay's start to the first event
	}
	var variants []variant
	for _, tail := range []string{TailOn, TailOff} {
		for _, reads := range []string{"", "off", "denied"} {
			for _, after := range []time.Duration{time.Second, time.Minute} {
				variants = append(variants, variant{tail, 0, reads, after}, variant{tail, time.Second, reads, after})
			}
		}
	}
	for _, tt := range variants {
		t.Run(fmt.Sprintf("tail=%s/behind=%s/reads=%s/after=%s", tt.tail, tt.behind, tt.reads, tt.after), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.Tail = 2*time.Minute, tt.tail
					if tt.reads == "off" {
						c.ReadBackMargin = -1
					}
				})
				defer w.close()
				const topic = "OrderCreated"
				readable := func() {}
				if tt.reads == "denied" {
					readable = w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
				}
				r, stop := w.run()
				time.Sleep(tt.after)
				for seq := range int64(5) {
					w.write(relaytest.Event(0, seq+1, topic))
					time.Sleep(2 * time.Second)
				}
				if tt.behind == 0 {
					time.Sleep(10 * time.Minute)
					w.write(again(0, 3, topic))
				} else {
					w.writeAt(again(0, 3, topic), time.Now().Add(-6*time.Second-tt.behind))
				}
				time.Sleep(time.Second)
				w.write(relaytest.Event(0, 6, topic))
				time.Sleep(10 * time.Minute)
				problems, conflicts := strings.Join(r.Status().Problems, " "), relaytest.Count(r.metrics.SequenceConflicts)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				readable()
				found := make(map[gocql.UUID]int)
				n := 0
				for _, d := range w.consume(topic) {
					n++
					found[d.ID.UUID()]++
				}
				if n != 7 || len(found) != 7 {
					t.Errorf("%d records of %d events, want 7", n, len(found))
				}
				if conflicts != 1 || !strings.Contains(problems, "number 3 has two events") {
					t.Errorf("%v conflicts and problems %q, want the one", conflicts, problems)
				}
			})
		})
	}
}

// One id of events of two aggregates, as of a column that is unique within an aggregate only: an
// event that is not published is reported.
func TestConflicts_IDOfTwoAggregates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		numbers bool
		tail    string
		pause   time.Duration
	}{
		{"numbers", true, TailOn, time.Second},
		{"numbers, in progress together", true, TailOn, 0},
		{"numbers, by the sweep reader", true, TailOff, time.Second},
		{"without numbers", false, TailOn, time.Second},
		{"without numbers, by the sweep reader", false, TailOff, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.Tail = 20*time.Second, tt.tail
					if !tt.numbers {
						debezium(c)
					}
				})
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				r, stop := w.run()
				time.Sleep(time.Minute)
				if n := relaytest.Count(r.metrics.IDConflicts); n != 0 {
					t.Errorf("%v conflicts at first", n)
				}
				id := gocql.TimeUUID()
				for i := range 3 {
					if tt.numbers {
						e := relaytest.Event(i, 1, "OrderCreated")
						e.ID = outbox.IDFromUUID(id)
						w.write(e)
					} else {
						w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')", fmt.Sprint("order-", i), id)
					}
					time.Sleep(tt.pause)
				}
				time.Sleep(10 * time.Minute)
				problems := strings.Join(r.Status().Problems, " ")
				conflicts := relaytest.Count(r.metrics.IDConflicts)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if conflicts == 0 || !strings.Contains(problems, "has the id of another event") {
					t.Errorf("%v conflicts and problems %q, want both", conflicts, problems)
				}
			})
		})
	}
}

// One id of two events of an aggregate, as of a command that becomes two events: the second one,
// which is not published, is reported, and the next one of the aggregate follows.
func TestConflicts_IDOfTwoEventsOfAnAggregate(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, pause := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("tail=%s pause=%s", tail, pause), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 20*time.Second, tail })
					defer w.close()
					r, stop := w.run()
					time.Sleep(time.Minute)
					for seq := range int64(4) {
						e := relaytest.Event(0, seq+1, "OrderCreated")
						if seq == 2 {
							e.ID = relaytest.Event(0, seq, "OrderCreated").ID
						}
						w.write(e)
						time.Sleep(pause)
					}
					time.Sleep(10 * time.Minute)
					problems, conflicts := strings.Join(r.Status().Problems, " "), relaytest.Count(r.metrics.IDConflicts)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					var got []int64
					for _, d := range w.consume("OrderCreated") {
						got = append(got, d.Sequence)
					}
					if !slices.Equal(got, []int64{1, 2, 4}) || conflicts == 0 || !strings.Contains(problems, "has the id of another event") {
						t.Errorf("published %v, %v conflicts and problems %q, want all but 3 and a report", got, conflicts, problems)
					}
				})
			})
		}
	}
}

// An event that was appended again under a later number, computed again and without SearchFrom: the
// row is reported once, with that cause, and an hour later the relay is ready.
func TestConflicts_IDAppendedAgainCountsOnce(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		t.Run("tail="+tail, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 20*time.Second, tail })
				defer w.close()
				r, stop := w.run()
				time.Sleep(time.Minute)
				for seq := range int64(6) {
					e := relaytest.Event(0, seq+1, "OrderCreated")
					if seq == 5 {
						e.ID = relaytest.Event(0, 4, "OrderCreated").ID
					}
					w.write(e)
					if seq == 5 { // as Settle does
						for range 5 {
							time.Sleep(time.Minute)
							w.write(e)
						}
					}
				}
				time.Sleep(time.Minute)
				problems, conflicts := strings.Join(r.Status().Problems, " "), relaytest.Count(r.metrics.IDConflicts)
				time.Sleep(time.Hour)
				later := r.Status().Problems
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if conflicts != 1 || !strings.Contains(problems, "without SearchFrom") {
					t.Errorf("%v conflicts and problems %q, want one with its causes", conflicts, problems)
				}
				if len(later) > 0 {
					t.Errorf("problems %q an hour later", later)
				}
			})
		})
	}
}

// As above, in two topics, while a relay runs or across a restart.
func TestConflicts_IDOfTwoAggregatesInTwoTopics(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("tail=%s restart=%t", tail, restart), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 2*time.Minute, tail })
					defer w.close()
					r, stop := w.run()
					time.Sleep(time.Minute)
					id := outbox.NewID()
					for i, topic := range []string{"OrderCreated", "OrderUpdated"} {
						if i > 0 && restart {
							if err := stop(); err != nil {
								t.Error(err)
							}
							r, stop = w.run()
						}
						e := relaytest.Event(i, 1, topic)
						e.ID = id
						w.write(e)
						time.Sleep(30 * time.Second)
					}
					time.Sleep(10 * time.Minute)
					problems, conflicts := strings.Join(r.Status().Problems, " "), relaytest.Count(r.metrics.IDConflicts)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if n := len(w.consume("OrderCreated", "OrderUpdated")); n != 1 || conflicts == 0 || !strings.Contains(problems, "has the id of another event") {
						t.Errorf("%d published, %v conflicts and problems %q, want the first event and a report", n, conflicts, problems)
					}
				})
			})
		}
	}
}

// The event whose id another event has is a dead letter, open or settled. In an
// outage of the broker the other one would become a dead letter too.
func TestConflicts_IDOfADeadLetter(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, discarded := range []bool{false, true} {
			for _, after := range []string{"", "restart", "restart, outage", "restart, same aggregate"} {
				t.Run(fmt.Sprintf("tail=%s discarded=%t %s", tail, discarded, after), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 20*time.Second, tail })
						defer w.close()
						r, stop := w.run()
						first := relaytest.Event(0, 1, "OrderCreated")
						end := w.refuse(first.ID.UUID(), kerr.MessageTooLarge)
						w.write(first)
						time.Sleep(time.Minute)
						end()
						if discarded {
							if err := w.deadLetters().Discard(t.Context(), first.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
								t.Fatal(err)
							}
							time.Sleep(time.Minute)
						}
						if after != "" {
							if err := stop(); err != nil {
								t.Fatal(err)
							}
							r, stop = w.run()
							time.Sleep(10 * time.Second)
						}
						if n := relaytest.Count(r.metrics.IDConflicts); n != 0 {
							t.Errorf("%v conflicts of one dead letter, want none", n)
						}
						end = func() {}
						if after == "restart, outage" {
							end = w.brokerOutage()
							for i := range 20 {
								w.write(relaytest.Event(2+i, 1, "OrderUpdated"))
							}
							time.Sleep(time.Minute)
						}
						second := relaytest.Event(1, 1, "OrderCreated")
						if strings.Contains(after, "same aggregate") {
							second = relaytest.Event(0, 2, "OrderCreated")
						}
						second.ID = first.ID
						w.write(second)
						time.Sleep(2 * time.Minute)
						end()
						time.Sleep(10 * time.Minute)
						problems, conflicts := strings.Join(r.Status().Problems, " "), relaytest.Count(r.metrics.IDConflicts)
						if err := stop(); err != nil {
							t.Fatal(err)
						}
						if n := len(w.consume("OrderCreated")); n == 0 && (conflicts == 0 || !strings.Contains(problems, "has the id of another event")) {
							t.Errorf("the event is not published, with %v conflicts and problems %q, want both", conflicts, problems)
						}
					})
				})
			}
		}
	}
}

// Restarts, replays of rows and forgotten aggregates are no conflicts.
func TestConflicts_NoneOfRepeatedRows(t *testing.T) {
	t.Parallel()
	for _, numbers := range []bool{true, false} {
		t.Run(fmt.Sprint("numbers=", numbers), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.MaxAggregates = 2*time.Minute, 20
					if !numbers {
						debezium(c)
					}
				})
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				var r *Relay
				var stop func() error
				for range 3 {
					r, stop = w.run()
					for i := range 50 {
						write := func() { w.write(relaytest.Event(i, 1, "OrderCreated")) }
						if id := gocql.TimeUUID(); !numbers {
							write = func() {
								w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')", fmt.Sprint("order-", i), id)
							}
						}
						write()
						time.Sleep(time.Second)
						write()
					}
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if n := relaytest.Count(r.metrics.IDConflicts) + relaytest.Count(r.metrics.SequenceConflicts); n != 0 {
						t.Errorf("%v conflicts; problems %v", n, r.Status().Problems)
					}
				}
			})
		})
	}
}
