package relay

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// ownTable makes a team's own outbox table with Debezium's columns, in its own
// keyspace. key is the primary key.
func (w *world) ownTable(key, options string) {
	w.t.Helper()
	for _, stmt := range []string{
		"CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		"CREATE TABLE shop.events (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, processed_by text, PRIMARY KEY (" + key + "))" + options,
	} {
		if err := w.session.Query(stmt).Exec(); err != nil {
			w.t.Fatalf("%s: %v", stmt, err)
		}
	}
}

// debezium makes the relay that of shop.events.
func debezium(c *Config) {
	c.TableKeyspace, c.Table, c.Mapping = "shop", "events", outbox.Mapping{Preset: outbox.PresetDebezium}
	c.TopicTemplate = ""
}

// count is the number of rows that a query finds.
func (w *world) count(stmt string, args ...any) (n int) {
	w.t.Helper()
	if err := w.session.Query(stmt, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", stmt, err)
	}
	return n
}

// A relay carries a table with Debezium's columns and text for aggregates: by the
// tail and by the sweep, across a restart, beside the relay of outbox_messages.
func TestRelay_CarriesAnOwnTable(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, tail := range []string{TailOn, TailOff} {
		t.Run("tail="+tail, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Tail = tail })
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				columns, err := outbox.ReadColumns(t.Context(), w.session, "shop", "events")
				if err != nil {
					t.Fatal(err)
				}
				table, err := outbox.Mapping{Preset: outbox.PresetDebezium}.Table("shop", "events", columns)
				if err != nil {
					t.Fatal(err)
				}
				_, stopDefault := w.run()
				w.write(relaytest.Event(1, 1, "OrderCreated"))
				w.write(relaytest.Event(1, 2, "OrderCreated"))

				debezium(&w.cfg)
				want := make(map[string][]string) // ids by aggregate, in order
				n := 0
				write := func() {
					aggregate := fmt.Sprintf("order-%d", n%5)
					e := outbox.Event{
						ID: outbox.IDFromUUID(gocql.TimeUUID()), AggregateID: outbox.IDFromText(aggregate), AggregateType: "order", Type: "Placed",
						Payload: fmt.Appendf(nil, `{"n":%d}`, n), CreatedAt: time.Now(),
					}
					b := w.session.Batch(gocql.LoggedBatch)
					if err := table.Append(b, e); err != nil {
						t.Fatal(err)
					}
					if err := b.Exec(); err != nil {
						t.Fatal(err)
					}
					want[aggregate] = append(want[aggregate], e.ID.String())
					if n%7 == 0 { // what Debezium's users do; and a column that no event is made of
						for _, stmt := range []string{
							"UPDATE shop.events SET processed_by = 'x' WHERE aggregateid = ? AND id = ?",
							"DELETE FROM shop.events WHERE aggregateid = ? AND id = ?",
						} {
							if err := w.session.Query(stmt, aggregate, e.ID).Exec(); err != nil {
								t.Fatal(err)
							}
						}
					}
					n++
				}
				early := 0.0
				for range 3 {
					r, stop := w.run()
					for range 30 {
						write()
						time.Sleep(20 * time.Millisecond)
					}
					time.Sleep(5 * time.Second)
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
					early += relaytest.Count(r.metrics.Found[publish.ByTail])
				}
				if tail == TailOn && early < float64(n)*0.9 {
					t.Errorf("the tail found %v of %d events, want nearly all", early, n)
				}
				if err := stopDefault(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := make(map[string][]string)
				for _, d := range w.consume("outbox.event.order") {
					got[d.AggregateID.String()] = append(got[d.AggregateID.String()], d.ID.String())
					if d.Sequence != 0 || d.Type != "Placed" || time.Since(d.CreatedAt) > time.Minute || !strings.HasPrefix(string(d.Payload), `{"n":`) {
						t.Errorf("event %+v", d.Event)
					}
				}
				for a, ids := range want {
					if strings.Join(got[a], " ") != strings.Join(ids, " ") {
						t.Errorf("aggregate %s: %d events in the topic, want %d, each once and in the order of the writes", a, len(got[a]), len(ids))
					}
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated"), []outbox.Event{relaytest.Event(1, 1, "OrderCreated"), relaytest.Event(1, 2, "OrderCreated")})
				for _, name := range []string{"shop.events", "outbox.outbox_messages"} {
					if w.count("SELECT count(*) FROM relay_checkpoints WHERE relay = ? AND table_name = ?", Defaults().Name, name) == 0 {
						t.Errorf("no checkpoints of %s", name)
					}
				}
			})
		})
	}
}

// A record has the headers of Debezium's outbox event router beside the relay's own, by which a
// restart knows the published events.
func TestRelay_RecordHeaders(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, debezium)
		defer w.close()
		w.cfg.Mapping.RecordHeaders = map[string]string{"id": "id", "eventType": "type", "processedBy": "processed_by"}
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		var ids []string
		for i := range 3 {
			_, stop := w.run()
			id := gocql.TimeUUID()
			ids = append(ids, id.String())
			var by any = "me"
			if i == 1 {
				by = gocql.UnsetValue
			}
			if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload, processed_by) VALUES ('order-1', ?, 'order', 'Placed', '{}', ?)",
				id, by).Exec(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
		}
		w.cfg.Tail = TailOff // the sweep reader reads all rows again
		_, stop := w.run()
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		got := w.consume("outbox.event.order")
		if len(got) != len(ids) {
			t.Fatalf("%d records, want each of %d events once", len(got), len(ids))
		}
		for i, d := range got {
			by := "me"
			if i == 1 {
				by = "" // of a null there is no header
			}
			if d.Header("id") != ids[i] || d.Header(outbox.HeaderID) != ids[i] || d.Header("eventType") != "Placed" || d.Header("processedBy") != by || d.AggregateID.String() != "order-1" {
				t.Errorf("record %d of %s has %q", i, ids[i], d.RecordHeaders)
			}
		}
	})
}

// A row that is no event holds its aggregate, and nothing else, where there are
// no dead letters.
func TestRelay_ABadRowHoldsOnlyItsAggregate(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, debezium)
		defer w.close()
		w.cfg.DeadLetters = DeadLettersOff
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		r, stop := w.run()
		insert := func(aggregate string, payload any) {
			// A null type, and an update that adds no event though the key has its id.
			if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', ?, '{}')",
				aggregate, gocql.TimeUUID(), payload).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		insert("a", gocql.UnsetValue)
		for i := range 20 {
			insert(fmt.Sprint("b", i), "Placed")
		}
		time.Sleep(10 * time.Second)
		if got := w.consume("outbox.event.order"); len(got) != 20 {
			t.Errorf("%d events in the topic, want those of the other aggregates, 20", len(got))
		}
		s := r.Status()
		if len(s.Held) != 1 || s.Held[0].AggregateID != rows.IDOf("a") || len(s.HeldStreams) != 0 {
			t.Errorf("held are %+v and streams %v, want aggregate a alone", s.Held, s.HeldStreams)
		}
		var bad *rows.RowError
		if len(s.Held) == 1 && (!errors.As(s.Held[0].Err, &bad) || bad.Column != "type" || bad.Event.AggregateID.String() != "a") {
			t.Errorf("held because of %v, want column type", s.Held[0].Err)
		}
		if n := relaytest.Count(r.metrics.capture.RowsUndecodable); n == 0 {
			t.Error("no undecodable row is counted")
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// A mapping that does not fit is reported immediately, with the column and the fix.
func TestRelay_NamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, debezium)
		defer w.close()
		for _, tt := range []struct {
			prepare func()
			change  func(*Config)
			want    string
		}{
			{func() {}, func(*Config) {}, "shop.events does not exist"},
			{func() { w.ownTable("aggregateid, id", "") }, func(*Config) {}, "ALTER TABLE shop.events WITH cdc = {'enabled': true"},
			{func() {
				if err := w.session.Query("ALTER TABLE shop.events WITH cdc = {'enabled': true}").Exec(); err != nil {
					t.Fatal(err)
				}
			}, func(c *Config) { c.Mapping.Columns = map[string]string{"payload": "body"} }, "column body is missing: map payload to one of aggregateid"},
		} {
			tt.prepare()
			cfg := w.cfg
			cfg.Session, cfg.Registerer = w.session, prometheus.NewRegistry()
			tt.change(&cfg)
			r, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = r.Run(t.Context())
			if err == nil || failure.Classify(err) != failure.Fatal || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run() error = %v, want a fatal one with %q", err, tt.want)
			}
		}
	})
}

// A row that becomes visible when the tail no longer reads its time is published by the sweep,
// behind the others, and is counted. Nothing is lost.
func TestRelay_ALateRowOfATableWithoutNumbers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
		defer w.close()
		debezium(&w.cfg)
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		time.Sleep(5 * time.Minute)
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		insert := func(id gocql.UUID, written time.Time) {
			if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'order', 'Placed', '{}')",
				id).WithTimestamp(written.UnixMicro()).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		late, others := gocql.TimeUUID(), []gocql.UUID{gocql.TimeUUID(), gocql.TimeUUID(), gocql.TimeUUID()}
		for _, id := range others {
			insert(id, time.Now())
			time.Sleep(time.Second)
		}
		insert(late, time.Now().Add(-30*time.Second))
		time.Sleep(10 * time.Second)
		if got := w.consume("outbox.event.order"); len(got) != len(others) {
			t.Errorf("%d events before the sweep comes, want %d", len(got), len(others))
		}
		time.Sleep(3 * time.Minute)
		var got []gocql.UUID
		for _, d := range w.consume("outbox.event.order") {
			got = append(got, d.ID.UUID())
		}
		if want := append(others, late); !slices.Equal(got, want) {
			t.Errorf("the topic has %v, want %v", got, want)
		}
		if n := relaytest.Count(r.metrics.Late); n != 1 {
			t.Errorf("%v late events are counted, want 1", n)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// Two writers whose writes overlap, with their own clocks, and relays that are
// killed again and again: every event once, and an aggregate's in the order of
// their write times.
func TestRelay_OrdersTheWritesOfTwoWriters(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for seed := range seeds.Range(t, 3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 11))
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				debezium(&w.cfg)
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				const window = 40 * time.Millisecond
				w.cfg.TailReorder = window
				type row struct {
					id gocql.UUID
					at int64
				}
				written := make(map[string][]row)
				var done sync.WaitGroup
				write := func(aggregate string) {
					at := time.Now()
					id := gocql.TimeUUID()
					written[aggregate] = append(written[aggregate], row{id, at.UnixMicro()})
					// It takes a while until the row is there, with the time at which it began.
					wait := time.Duration(rnd.Int64N(int64(window - 5*time.Millisecond)))
					done.Go(func() {
						time.Sleep(wait)
						if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')",
							aggregate, id).WithTimestamp(at.UnixMicro()).Exec(); err != nil {
							t.Error(err)
						}
					})
				}
				for range 3 {
					_, stop := w.run()
					for range 150 {
						write(fmt.Sprint("a", rnd.IntN(4)))
						time.Sleep(time.Duration(1+rnd.IntN(15000)) * time.Microsecond)
					}
					done.Wait()
					time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
				}
				_, stop := w.run()
				time.Sleep(4 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := make(map[string][]gocql.UUID)
				for _, d := range w.consume("outbox.event.order") {
					got[d.AggregateID.String()] = append(got[d.AggregateID.String()], d.ID.UUID())
				}
				for a, rows := range written {
					slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(x.at, y.at) })
					want := make([]gocql.UUID, len(rows))
					for i, r := range rows {
						want[i] = r.id
					}
					if !slices.Equal(got[a], want) {
						t.Errorf("aggregate %s: %d events, want %d, each once and in the order of the writes", a, len(got[a]), len(want))
					}
				}
			})
		})
	}
}

// A table with numbers, and integers for its ids: rows that the log shows in another order are read
// by key.
func TestRelay_CarriesATableWithNumbers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		w.ownTable("aggregateid, id", "")
		if err := w.session.Query(`CREATE TABLE shop.moves (customer bigint, n int, id int, "what" ascii, body blob, happened timeuuid,
			meta map<text, text>, PRIMARY KEY (customer, n)) WITH cdc = {'enabled': true}`).Exec(); err != nil {
			t.Fatal(err)
		}
		mapping := outbox.Mapping{AggregateType: "customer", Columns: map[string]string{
			"aggregate_id": "customer", "seq": "n", "event_id": "id", "event_type": "what", "payload": "body", "created_at": "happened", "headers": "meta",
		}}
		columns, err := outbox.ReadColumns(t.Context(), w.session, "shop", "moves")
		if err != nil {
			t.Fatal(err)
		}
		table, err := mapping.Table("shop", "moves", columns)
		if err != nil {
			t.Fatal(err)
		}
		w.cfg.TableKeyspace, w.cfg.Table, w.cfg.Mapping = "shop", "moves", mapping
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		at := time.Now()
		for n := range 6 {
			b := w.session.Batch(gocql.LoggedBatch)
			if err := table.Append(b, outbox.Event{
				ID: outbox.IDFromText(fmt.Sprint(100 + n)), AggregateID: outbox.IDFromText("-9000000000"), Sequence: int64(n + 1), Type: "Moved", AggregateType: "customer",
				Payload: []byte{byte(n)}, CreatedAt: at, Headers: map[string]string{"traceparent": "x"},
			}); err != nil {
				t.Fatal(err)
			}
			b.WithTimestamp(at.Add(time.Duration(n^1) * 300 * time.Millisecond).UnixMicro()) // 2 before 1, 4 before 3, …
			if err := b.Exec(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		got := w.consume("Moved")
		for i, d := range got {
			if d.Sequence != int64(i+1) || d.ID.String() != fmt.Sprint(100+i) || d.AggregateID.String() != "-9000000000" || len(d.Payload) != 1 ||
				d.Headers["traceparent"] != "x" || d.CreatedAt.UnixMilli() != at.UnixMilli() {
				t.Errorf("event %d is %+v", i, d.Event)
			}
		}
		if len(got) != 6 {
			t.Errorf("%d events in the topic, want 6", len(got))
		}
		if n := relaytest.Count(r.metrics.Found[publish.ByKey]); n == 0 {
			t.Error("nothing was looked up by key")
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// The first relay of a table whose ids are integers begins also if the table has rows.
func TestRelay_FirstStartOnATableWithRowsAndIntegerIDs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		w.ownTable("aggregateid, id", "")
		for _, statement := range []string{
			"CREATE TABLE shop.moves (customer bigint, n int, id int, what text, body text, PRIMARY KEY (customer, n)) WITH cdc = {'enabled': true}",
			"INSERT INTO shop.moves (customer, n, id, what, body) VALUES (7, 1, 100, 'Moved', '{}')",
		} {
			if err := w.session.Query(statement).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		w.cfg.TableKeyspace, w.cfg.Table, w.cfg.Mapping = "shop", "moves", outbox.Mapping{AggregateType: "customer", Columns: map[string]string{
			"aggregate_id": "customer", "seq": "n", "event_id": "id", "event_type": "what", "payload": "body",
		}}
		_, stop := w.run()
		time.Sleep(time.Minute)
		if got := w.consume("Moved"); len(got) != 1 || got[0].ID.String() != "100" || got[0].AggregateID.String() != "7" {
			t.Errorf("the topic has %v, want event 100 of aggregate 7", got)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}
