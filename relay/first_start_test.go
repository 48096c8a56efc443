package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// At a first start soon after CDC was turned on, rows that the log may lack become visible
// within the confidence window, behind the start. Each aggregate has one event, so no later
// one leads to it.
func TestRelay_FirstStartAfterAnAlteredLog(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 20 * time.Second} {
		for stored, tail := range []string{TailOff, TailOn, TailOff} {
			t.Run(fmt.Sprintf("%s after/%d events/tail %s", after, stored, tail), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 30*time.Second, tail })
					defer w.close()
					time.Sleep(time.Minute)
					all := relaytest.Events(stored+20, 1, "OrderCreated")
					w.exec(cdcOff)
					for _, e := range all[:stored] {
						w.write(e)
					}
					time.Sleep(10 * time.Second)
					w.exec(cdcOn)
					altered := time.Now()
					time.Sleep(after)
					r, stop := w.run()
					time.Sleep(10 * time.Second)
					for i, e := range all[stored:] {
						w.writeAt(e, altered.Add(time.Duration(i-10)*300*time.Millisecond))
					}
					time.Sleep(2 * time.Minute)
					if s := r.Status(); s.Backfill.Running || len(s.Problems) > 0 {
						t.Errorf("Status() = %+v, want no scan under way and no problems", s)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
				})
			})
		}
	}
}

// A new table without sequence numbers, whose log keeps rows for less time than a first start
// looks back, has lost nothing.
func TestRelay_FirstStartOfAYoungTableReportsNoLoss(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprint("stored=", stored), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				debezium(&w.cfg)
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true, 'ttl': 3600}")
				if stored {
					w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('order-1', ?, 'order', 'Placed', '{}')", gocql.TimeUUID())
				}
				log := w.logged()
				_, stop := w.run()
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if strings.Contains(log.String(), "level=ERROR") {
					t.Errorf("the relay reports:\n%s", log)
				}
			})
		})
	}
}
