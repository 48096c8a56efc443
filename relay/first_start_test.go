package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
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

// A new table without sequence numbers, whose log keeps rows for less time than a first start reads
// back, has lost nothing.
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
				log := w.logToBuffer()
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

// A first start publishes every event, from whatever time a scan is requested: of rows in the
// table, and of rows that their service has deleted from it and not yet from the log.
func TestRelay_FirstStartWithARequestPublishesAll(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *world) (more []outbox.Event){
		"rows":        func(*world) []outbox.Event { return nil },
		"no backfill": func(w *world) []outbox.Event { w.cfg.Backfill = BackfillOff; return nil },
		"deleted rows": func(w *world) []outbox.Event {
			w.exec("TRUNCATE outbox.outbox_messages")
			return nil
		},
		"deleted rows of some aggregates": func(w *world) []outbox.Event {
			w.exec("TRUNCATE outbox.outbox_messages")
			e := relaytest.Event(10, 1, "OrderCreated")
			w.write(e)
			return []outbox.Event{e}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
				defer w.close()
				all := relaytest.Events(10, 2, "OrderCreated")
				for _, e := range all {
					w.write(e)
				}
				all = append(all, prepare(w)...)
				time.Sleep(10 * time.Minute)
				w.cfg.BackfillFrom = time.Now().Add(-5 * time.Minute)
				for range 2 {
					_, stop := w.run()
					time.Sleep(10 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated"), all)
			})
		})
	}
}

// A limit of docs/promises.md: nothing connects a table with its copy.
func TestFirstStart_OfACopiedTable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		debezium(&w.cfg)
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		w.exec("CREATE TABLE shop.copy (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}")
		id := gocql.TimeUUID()
		for _, table := range []string{"events", "copy"} {
			w.exec("INSERT INTO shop."+table+" (aggregateid, id, aggregatetype, type, payload) VALUES ('order-1', ?, 'order', 'Placed', '{}')", id)
			w.cfg.Table = table
			_, stop := w.run()
			time.Sleep(10 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		if got := len(w.consume("outbox.event.order")); got != 2 {
			t.Errorf("%d records, want one of each table", got)
		}
	})
}
