package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Dead letters of a table without numbers leave in the order of the writes, those
// of one batch in the order of the log, also when another relay replays them. Their
// ids are in another order.
func TestDeadLetters_OfATableWithoutNumbersKeepTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
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
		debezium(&w.cfg)
		w.cfg.Mapping.RecordHeaders = map[string]string{"id": "id", "eventType": "type"}
		rnd := rand.New(rand.NewPCG(7, 7))
		write := func(aggregate string, batch int) {
			b := w.session.Batch(gocql.LoggedBatch)
			for i := range 2 {
				id := gocql.UUIDFromTime(time.Now().Add(time.Duration(rnd.IntN(1e6)) * time.Millisecond))
				if err := table.Append(b, outbox.Event{
					ID: outbox.IDFromUUID(id), AggregateID: outbox.IDFromText(aggregate), AggregateType: "order", Type: "Placed",
					Payload: fmt.Appendf(nil, `{"n":%d}`, 2*batch+i), CreatedAt: time.Now(),
				}); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Exec(); err != nil {
				t.Fatal(err)
			}
		}
		_, stop := w.run()
		write("order-1", 0)
		time.Sleep(10 * time.Second)
		reachable := w.unreachable()
		write("order-2", 0) // it is on its way when the loss is noticed, and stays with the producer
		time.Sleep(25 * time.Second)
		for n := range 20 {
			write("order-1", n+1)
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		_ = stop()
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.DeadLetters < 20 {
			t.Errorf("%d dead letters, want most of 40", s.DeadLetters)
		}
		reachable()
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		var got []string
		for _, d := range w.consume("outbox.event.order") {
			if d.AggregateID.String() == "order-1" {
				got = append(got, d.ID.String())
			}
			if d.Header("id") != d.ID.String() || d.Header("eventType") != "Placed" {
				t.Errorf("the record of %s has %q, want the mapped headers", d.ID, d.RecordHeaders)
			}
		}
		// The ids in the order of the log.
		var want []string
		iter := w.session.Query(`SELECT aggregateid, id FROM shop.events_scylla_cdc_log`).Prefetch(0).Iter()
		var aggregate string
		var id gocql.UUID
		for iter.Scan(&aggregate, &id) {
			if aggregate == "order-1" && (len(want) == 0 || want[len(want)-1] != id.String()) {
				want = append(want, id.String())
			}
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%d events in the topic, want %d in the order of the log:\n got %v\nwant %v", len(got), len(want), got, want)
		}
	})
}

// A discarded event of a table without numbers is not published when a reader comes to its
// row: neither the sweep reader of the same relay nor the readers after a restart. Only the
// dedup index prevents it, because without numbers no proof is made.
func TestDeadLetters_DiscardedOfATableWithoutNumbers(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, restart := range map[string]bool{"same relay": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = time.Minute
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
				})
				defer w.close()
				w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
				debezium(&w.cfg)
				ids := []gocql.UUID{gocql.TimeUUID(), gocql.TimeUUID(), gocql.TimeUUID()}
				bad := ids[1]
				end := w.refuse(bad, kerr.InvalidRecord)
				_, stop := w.run()
				time.Sleep(5 * time.Second)
				for _, id := range ids {
					if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'order', 'Placed', '{}')", id).Exec(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Second)
				end()
				if err := w.deadLetters().Discard(t.Context(), bad, dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if restart {
					if err := stop(); err != nil {
						t.Errorf("Run() error = %v", err)
					}
					_, stop = w.run()
				}
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				var got []gocql.UUID
				for _, d := range w.consume("outbox.event.order") {
					got = append(got, d.ID.UUID())
				}
				if want := []gocql.UUID{ids[0], ids[2]}; !slices.Equal(got, want) {
					t.Errorf("the topic contains %v, want %v without the discarded %v", got, want, bad)
				}
			})
		})
	}
}
