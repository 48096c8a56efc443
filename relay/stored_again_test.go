package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A service stores a row a second time, as after a lost answer or a command that is delivered
// again. With a number the event is published once, however much later and across restarts.
// Without one, or with a later creation time, it is published once while the relay knows its id: for
// as long as it runs, and after a restart for the confidence window. Beyond that the event is repeated
// with its id.
func TestRelay_ARowStoredASecondTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		numbers, restart bool
		after            time.Duration
		want             int
		created          bool // the second row has a creation time of its own
	}{
		{numbers: true, restart: false, after: 20 * time.Minute, want: 1},
		{numbers: true, restart: true, after: time.Minute, want: 1},
		{numbers: true, restart: true, after: 20 * time.Minute, want: 1},
		{numbers: true, restart: false, after: 20 * time.Minute, want: 1, created: true},
		{numbers: true, restart: true, after: time.Minute, want: 1, created: true},
		{numbers: true, restart: true, after: 20 * time.Minute, want: 2, created: true},
		{numbers: false, restart: false, after: 20 * time.Minute, want: 1},
		{numbers: false, restart: true, after: time.Minute, want: 1},
		{numbers: false, restart: true, after: 110 * time.Second, want: 1},
		{numbers: false, restart: true, after: 20 * time.Minute, want: 2},
	} {
		t.Run(fmt.Sprintf("numbers %t, restart %t, after %s, created again %t", tt.numbers, tt.restart, tt.after, tt.created), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				e := relaytest.Event(1, 1, "OrderCreated")
				topic, write := "OrderCreated", func() { w.write(e) }
				if !tt.numbers {
					debezium(&w.cfg)
					w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
					e.ID = outbox.IDFromUUID(gocql.TimeUUID())
					topic, write = "outbox.event.order", func() {
						w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('order-1', ?, 'order', 'Placed', '{}')", e.ID)
					}
				}
				_, stop := w.run()
				time.Sleep(5 * time.Second)
				write()
				time.Sleep(tt.after / 2)
				if tt.restart {
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run()
				}
				time.Sleep(tt.after / 2)
				if tt.created {
					e.CreatedAt = time.Now()
				}
				write()
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				published := w.consume(topic)
				if len(published) != tt.want {
					t.Errorf("the event is published %d times, want %d", len(published), tt.want)
				}
				for _, d := range published {
					if d.ID.UUID() != e.ID.UUID() {
						t.Errorf("event %s is published, want %s", d.ID, e.ID)
					}
				}
			})
		})
	}
}

// A batch gives its rows one write time: the events of one aggregate are published in the order
// of the clustering key, whatever the order of the statements, each once, by both readers and
// across restarts. In a table with numbers the numbers decide.
func TestRelay_OrdersTheRowsOfABatch(t *testing.T) {
	t.Parallel()
	const n = 5
	for _, tail := range []string{TailOn, TailOff} {
		for _, numbers := range []bool{false, true} {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("tail %s, numbers %t, killed %t", tail, numbers, killed), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
						defer w.close()
						w.cfg.Tail = tail
						topic := "OrderCreated"
						var want []string
						if !numbers {
							debezium(&w.cfg)
							w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
							topic = "outbox.event.order"
						}
						run := func() {
							_, stop := w.run()
							time.Sleep(5 * time.Minute)
							if err := stop(); err != nil {
								t.Error(err)
							}
						}
						for range 2 {
							b := w.session.Batch(gocql.LoggedBatch)
							var ids []string
							for i := range n {
								// The last statement has the lowest key.
								if numbers {
									e := relaytest.Event(1, int64(len(want)+n-i), topic)
									if err := outbox.Append(b, e); err != nil {
										t.Fatal(err)
									}
									ids = append(ids, e.ID.String())
									continue
								}
								id := gocql.UUIDFromTime(time.Now().Add(time.Duration(n-i) * time.Second))
								b.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('order-1', ?, 'order', 'Placed', '{}')", id)
								ids = append(ids, id.String())
							}
							if err := b.Exec(); err != nil {
								t.Fatal(err)
							}
							slices.Reverse(ids)
							want = append(want, ids...)
							if killed {
								w.crashAfter(3 * time.Second)
							} else {
								run()
							}
						}
						run()
						var got []string
						for _, d := range w.consume(topic) {
							got = append(got, d.ID.String())
						}
						if !slices.Equal(got, want) {
							t.Errorf("published %v, want %v", got, want)
						}
					})
				})
			}
		}
	}
}
