package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// orders makes the relay that of shop.orders, a table as services have it: its aggregates are
// orders of a tenant, and topic, key, times, headers and names are its own.
func (w *world) orders() {
	w.t.Helper()
	for _, stmt := range []string{
		"CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		`CREATE TABLE shop.orders (tenant text, "orderId" bigint, n int, "eventId" uuid, kind text, body text, meta text, at bigint, topic text, route text,
			ok boolean, level smallint, price decimal, seen timestamp, PRIMARY KEY ((tenant, "orderId"), n)) WITH cdc = {'enabled': true}`,
	} {
		if err := w.session.Query(stmt).Exec(); err != nil {
			w.t.Fatalf("%s: %v", stmt, err)
		}
	}
	w.cfg.TableKeyspace, w.cfg.Table, w.cfg.TopicTemplate, w.cfg.Topics = "shop", "orders", "shop.{event_type}", nil
	w.cfg.Mapping = outbox.Mapping{
		Columns: map[string]string{
			"aggregate_id": "tenant, orderId", "seq": "n", "event_id": "eventId", "event_type": "kind", "payload": "body", "headers": "meta", "created_at": "at",
		},
		AggregateType: "order",
		RecordHeaders: map[string]string{outbox.HeaderTopic: "topic", outbox.HeaderPartitionKey: "route", "ok": "ok", "level": "level", "price": "price", "seen": "seen"},
	}
}

// insertOrder writes event n of an order, which names its topic if it is odd.
func (w *world) insertOrder(tenant string, order int64, n int) {
	w.t.Helper()
	var topic any
	if n%2 == 1 {
		topic = "odd"
	}
	const stmt = `INSERT INTO shop.orders (tenant, "orderId", n, "eventId", kind, body, meta, at, topic, route, ok, level, price, seen)
		VALUES (?, ?, ?, ?, 'Changed', '{}', '{"traceparent":"x"}', ?, ?, ?, true, -3, 12.50, '2026-11-30T18:00:00Z')`
	if err := w.session.Query(stmt, tenant, order, n, gocql.TimeUUID(), time.Now().Unix(), topic, tenant).Exec(); err != nil {
		w.t.Fatal(err)
	}
}

// A relay carries such a table by each of its readers, with shards and after its log has passed:
// every event once, in the topic and with the key that its row names, the events of an order of a
// tenant in sequence.
func TestRelay_CarriesATableOfAService(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, change := range map[string]func(*Config){
		"tail":  nil,
		"sweep": func(c *Config) { c.Tail = TailOff },
		"scan":  scanAll(0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, change)
				defer w.close()
				w.orders()
				want := make(map[string]int)
				write := func(from, to int) {
					for n := from; n <= to; n++ {
						for _, tenant := range []string{"acme", "bolt"} {
							for order := range int64(3) {
								w.insertOrder(tenant, order, n)
								want[fmt.Sprintf("%s:%d", tenant, order)] = n
							}
						}
					}
				}
				write(1, 3)
				if name == "scan" { // rows that the log shows to nobody
					for _, stmt := range []string{"ALTER TABLE shop.orders WITH cdc = {'enabled': false}", "ALTER TABLE shop.orders WITH cdc = {'enabled': true}"} {
						time.Sleep(time.Minute)
						if err := w.session.Query(stmt).Exec(); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Minute)
				}
				for from := 4; from <= 8; from += 2 { // and after each start
					_, stop := w.run()
					time.Sleep(5 * time.Second)
					write(from, from+1)
					time.Sleep(5 * time.Minute)
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
				}
				got, scanned := make(map[string][]int64), 0
				for topic, odd := range map[string]int64{"odd": 1, "shop.Changed": 0} {
					of := make(map[string][]int64)
					for _, d := range w.consume(topic) {
						id := d.AggregateID.String()
						if d.Header(outbox.HeaderBackfill) != "" {
							scanned++
						}
						of[id] = append(of[id], d.Sequence)
						if d.Sequence%2 != odd || string(d.Key()) != id[:4] || d.Header("traceparent") != "x" || d.Header("ok") != "true" || d.Header("level") != "-3" ||
							d.Header("price") != "12.50" || d.Header("seen") != "2026-11-30T18:00:00.000Z" || time.Since(d.CreatedAt) > 2*time.Hour {
							t.Errorf("topic %s has %+v with %q", topic, d.Event, d.RecordHeaders)
						}
					}
					for id, numbers := range of {
						if !slices.IsSorted(numbers) {
							t.Errorf("topic %s has the numbers of %s in the order %v", topic, id, numbers)
						}
						got[id] = append(got[id], numbers...)
					}
				}
				if (scanned > 0) != (name == "scan") {
					t.Errorf("%d events were found by a scan", scanned)
				}
				for id, last := range want {
					numbers := slices.Sorted(slices.Values(got[id]))
					if len(numbers) != last || numbers[0] != 1 || numbers[last-1] != int64(last) {
						t.Errorf("order %s has the numbers %v in the topics, want each to %d once", id, numbers, last)
					}
				}
			})
		})
	}
}

// The shards of a relay divide the orders by the tokens of the database, so that each has one
// owner and finds the rows of its orders.
func TestRelay_ShardsOfATableOfAService(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		w.orders()
		columns, err := outbox.ReadColumns(t.Context(), w.session, "shop", "orders")
		if err != nil {
			t.Fatal(err)
		}
		table, err := w.cfg.Mapping.Table("shop", "orders", columns)
		if err != nil {
			t.Fatal(err)
		}
		for order := range int64(20) {
			w.insertOrder("acme", order, 1)
		}
		iter := w.session.Query(`SELECT tenant, "orderId", token(tenant, "orderId") FROM shop.orders`).Iter()
		var tenant string
		var order, token int64
		seen := 0
		for iter.Scan(&tenant, &order, &token) {
			seen++
			id := outbox.IDFromText(fmt.Sprintf("%s:%d", tenant, order))
			if got := rows.Token(table, id); got != token {
				t.Errorf("aggregate %s has the token %d, the database has %d", id, got, token)
			}
		}
		if err := iter.Close(); err != nil || seen != 20 {
			t.Errorf("read %d rows, %v", seen, err)
		}
	})
}
