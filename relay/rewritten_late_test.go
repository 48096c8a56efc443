package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Rows of a table without numbers are stored again with the same id, before and after a restart,
// with others of their aggregates in between: no event is published after a later one, and none
// is counted as such.
func TestRewritten_WithoutNumbersNothingIsLate(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, again := range []time.Duration{10 * time.Millisecond, 400 * time.Millisecond, 30 * time.Second, 5 * time.Minute} {
			for _, restart := range []string{"none", "before the repetition", "after it", "killed after it"} {
				if again > time.Minute && restart != "none" {
					continue // the id is not known after the restart, and the event published again
				}
				t.Run(fmt.Sprintf("tail %s, again after %s, restart %s", tail, again, restart), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
						defer w.close()
						w.cfg.Tail = tail
						debezium(&w.cfg)
						w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
						time.Sleep(5 * time.Minute)
						late := 0.0
						r, stop := w.run()
						end := func() {
							late += relaytest.Count(r.metrics.Late)
							if err := stop(); err != nil {
								t.Error(err)
							}
						}
						time.Sleep(5 * time.Second)
						ids := make(map[string][]gocql.UUID)
						insert := func(a string, id gocql.UUID) {
							w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')", a, id)
						}
						each := func(f func(a string)) {
							for a := range 6 {
								f(fmt.Sprint("a-", a))
								time.Sleep(10 * time.Millisecond)
							}
						}
						next := func(a string) {
							ids[a] = append(ids[a], gocql.TimeUUID())
							insert(a, ids[a][len(ids[a])-1])
						}
						repeat := func(a string) { insert(a, ids[a][0]) }
						each(next)
						time.Sleep(again)
						if restart == "before the repetition" {
							end()
							r, stop = w.run()
						}
						each(next)
						each(repeat)
						each(next)
						each(repeat)
						switch restart {
						case "after it":
							end()
							r, stop = w.run()
						case "killed after it":
							end()
							w.crashAfter(3 * time.Second)
							r, stop = w.run()
						}
						each(next)
						each(repeat)
						time.Sleep(5 * time.Minute)
						end()
						for _, d := range w.consume("outbox.event.order") {
							a := d.AggregateID.String()
							if len(ids[a]) == 0 || ids[a][0] != d.ID.UUID() {
								t.Fatalf("event %s of %s is published out of order or twice", d.ID, a)
							}
							ids[a] = ids[a][1:]
						}
						if late > 0 {
							t.Errorf("%v late events are counted, want 0", late)
						}
					})
				})
			}
		}
	}
}
