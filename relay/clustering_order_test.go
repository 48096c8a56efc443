package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// clusteringOrders are primary keys of a table with numbers, in each order that it may have.
var clusteringOrders = []struct{ name, key, order string }{
	{"ascending", "aggregate_id, seq", "seq ASC"},
	{"descending", "aggregate_id, seq", "seq DESC"},
	{"descending, then ascending", "aggregate_id, seq, event_id", "seq DESC, event_id ASC"},
	{"ascending, then descending", "aggregate_id, seq, event_id", "seq ASC, event_id DESC"},
}

// orderedTable makes a table with the columns of outbox_messages the relay's.
func (w *world) orderedTable(key, order string) outbox.Table {
	w.t.Helper()
	for _, stmt := range []string{
		"CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		"CREATE TABLE shop.events (aggregate_id text, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob," +
			" content_type text, headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp, PRIMARY KEY (" + key + "))" +
			" WITH CLUSTERING ORDER BY (" + order + ") AND cdc = {'enabled': true, 'ttl': 259200}",
	} {
		if err := w.session.Query(stmt).Exec(); err != nil {
			w.t.Fatalf("%s: %v", stmt, err)
		}
	}
	w.cfg.TableKeyspace, w.cfg.Table = "shop", "events"
	columns, err := outbox.ReadColumns(w.t.Context(), w.session, "shop", "events")
	if err != nil {
		w.t.Fatal(err)
	}
	table, err := outbox.Mapping{}.Table("shop", "events", columns)
	if err != nil {
		w.t.Fatal(err)
	}
	return table
}

func (w *world) insert(table *outbox.Table, e outbox.Event, at time.Time) {
	w.t.Helper()
	b := w.session.Batch(gocql.LoggedBatch)
	if !at.IsZero() {
		b.WithTimestamp(at.UnixMicro())
	}
	if err := table.Append(b, e); err != nil {
		w.t.Fatal(err)
	}
	if err := b.Exec(); err != nil {
		w.t.Fatal(err)
	}
}

// The clustering order of a table affects neither which events are published nor their order: rows
// that become visible behind the sweep reader are published before a later one, and after a restart
// nothing is repeated.
func TestRelay_ClusteringOrderOfTheTable(t *testing.T) {
	t.Parallel()
	for _, tt := range clusteringOrders {
		for _, tail := range []string{TailOn, TailOff} {
			t.Run(tt.name+"/tail "+tail, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 20*time.Second, tail })
					defer w.close()
					table := w.orderedTable(tt.key, tt.order)
					time.Sleep(5 * time.Minute)
					_, stop := w.run()
					time.Sleep(2 * time.Minute)
					var all []outbox.Event
					for a := range 3 {
						for seq := range 5 {
							all = append(all, relaytest.Event(a, int64(seq)+1, "OrderUpdated"))
						}
					}
					write := func(seq int64, ago time.Duration) {
						for _, e := range all {
							if e.Sequence == seq {
								w.insert(&table, e, time.Now().Add(-ago))
							}
						}
					}
					write(1, 50*time.Second)
					write(2, 45*time.Second)
					write(3, 45*time.Second-time.Microsecond)
					write(4, 0)
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run()
					write(5, 0)
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					got := w.consume("OrderUpdated")
					relaytest.CheckOrder(t, got, all)
					relaytest.CheckTimes(t, got)
				})
			})
		}
	}
}

// A scan passes on all rows of an aggregate in sequence, also after a failed read in
// the middle of it.
func TestBackfill_ClusteringOrderOfTheTable(t *testing.T) {
	t.Parallel()
	for _, tt := range clusteringOrders {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, scanAll(100))
				defer w.close()
				w.ranBefore()
				table := w.orderedTable(tt.key, tt.order)
				all := relaytest.Events(20, 8, "OrderCreated", "OrderUpdated")
				for _, e := range all {
					w.insert(&table, e, time.Time{})
				}
				time.Sleep(time.Minute)
				for range 5 {
					w.crashAfter(700 * time.Millisecond)
				}
				r, stop := w.run()
				time.Sleep(time.Minute)
				if s := r.Status().Backfill; s.Running || s.Done != s.Ranges {
					t.Errorf("Status().Backfill = %+v, want it done", s)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				got := w.consume("OrderCreated", "OrderUpdated")
				relaytest.CheckOrder(t, got, all)
				relaytest.CheckTimes(t, got)
			})
		})
	}
}
