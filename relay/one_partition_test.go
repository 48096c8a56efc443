package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// State in static columns and events in one partition, written by one conditional batch
// (docs/protocol.md), are published like other events: by both readers, and by a scan, also
// beside a partition whose events have expired and whose state remains.
func TestRelay_StateAndEventsInOnePartition(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		t.Run("tail="+tail, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.Tail, c.TableKeyspace, c.Table, c.TopicTemplate = tail, "shop", "accounts", "accounts"
				})
				defer w.close()
				for _, stmt := range []string{
					"CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
					`CREATE TABLE shop.accounts (aggregate_id uuid, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob, content_type text,
						headers frozen<map<text, text>>, created_at timestamp, deliver_at timestamp, balance bigint static, version bigint static,
						PRIMARY KEY (aggregate_id, seq)) WITH cdc = {'enabled': true, 'ttl': 259200}`,
				} {
					if err := w.session.Query(stmt).Exec(); err != nil {
						t.Fatalf("%s: %v", stmt, err)
					}
				}
				columns, err := outbox.ReadColumns(t.Context(), w.session, "shop", "accounts")
				if err != nil {
					t.Fatal(err)
				}
				table, err := outbox.Mapping{}.Table("shop", "accounts", columns)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				var want []string
				ids := []gocql.UUID{outbox.NewID().UUID(), outbox.NewID().UUID(), outbox.NewID().UUID()}
				change := func(id gocql.UUID, n int64) {
					t.Helper()
					b := w.session.Batch(gocql.LoggedBatch)
					if n == 1 {
						b.Query("UPDATE shop.accounts SET balance = ?, version = ? WHERE aggregate_id = ? IF version = null", n, n, id)
					} else {
						b.Query("UPDATE shop.accounts SET balance = ?, version = ? WHERE aggregate_id = ? IF version = ?", n, n, id, n-1)
					}
					if err := table.Append(b, outbox.Event{
						ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(id), Sequence: n, AggregateType: "account", Type: "BalanceChanged",
						Payload: []byte(`{}`), CreatedAt: time.Now(),
					}); err != nil {
						t.Fatal(err)
					}
					applied, iter, err := w.session.MapExecuteBatchCAS(b, map[string]any{})
					if iter != nil {
						_ = iter.Close()
					}
					if err != nil || !applied {
						t.Fatalf("change %d of %s: applied %t, %v", n, id, applied, err)
					}
					want = append(want, fmt.Sprint(id, " ", n))
				}
				_, stop := w.run()
				for n := range int64(5) {
					for _, id := range ids {
						change(id, n+1)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(w.cfg.ConfidenceWindow + time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				check := func(topic string, want []string) {
					t.Helper()
					var got []string
					last := make(map[string]int64)
					for _, d := range w.consume(topic) {
						got = append(got, fmt.Sprint(d.AggregateID.String(), " ", d.Sequence))
						if d.Sequence != last[d.AggregateID.String()]+1 {
							t.Errorf("%s: event %d of %s follows event %d", topic, d.Sequence, d.AggregateID.String(), last[d.AggregateID.String()])
						}
						last[d.AggregateID.String()] = d.Sequence
					}
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						t.Errorf("%s has %v, want %v", topic, got, want)
					}
				}
				check("accounts", want)
				if n := w.count("SELECT count(*) FROM dead_letter_queue"); n != 0 {
					t.Errorf("%d dead letters, want none", n)
				}
				// The events of one account expire, its state stays.
				if err := w.session.Query("DELETE FROM shop.accounts WHERE aggregate_id = ? AND seq > 0", ids[0]).Exec(); err != nil {
					t.Fatal(err)
				}
				w.cfg.Name, w.cfg.TopicTemplate, w.cfg.BackfillFrom = "again", "again", began.Add(-time.Minute)
				_, stop = w.run()
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				check("again", slices.DeleteFunc(want, func(e string) bool { return e[:36] == ids[0].String() }))
				if n := w.count("SELECT count(*) FROM dead_letter_queue"); n != 0 {
					t.Errorf("%d dead letters after a scan, want none", n)
				}
			})
		})
	}
}
