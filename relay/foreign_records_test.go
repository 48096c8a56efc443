package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// as makes the relays of w publish the table events of a keyspace, with bigint ids.
func (w *world) as(keyspace, source string) {
	w.cfg.TableKeyspace, w.cfg.Table, w.cfg.Mapping = keyspace, "events", outbox.Mapping{Preset: outbox.PresetDebezium}
	w.cfg.TopicTemplate, w.cfg.Source, w.cfg.Name = "", source, keyspace
}

// Two relays publish to one topic events whose ids are unique within their tables, as
// CloudEvents requires it of a source. A start of one takes no record of the other's for its
// own, whether their sources differ or only their tables.
func TestReadback_RecordsOfAnotherRelay(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"/shop", "/bank"} {
		for _, other := range []int64{55, 101} {
			t.Run(fmt.Sprint(source, " id=", other), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
					defer w.close()
					for _, keyspace := range []string{"shop", "bank"} {
						w.exec("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
						w.exec("CREATE TABLE " + keyspace + ".events (aggregateid text, id bigint, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}")
					}
					insert := func(keyspace, aggregate string, id int64) {
						w.exec(fmt.Sprintf("INSERT INTO %s.events (aggregateid, id, aggregatetype, type, payload) VALUES ('%s', %d, 'audit', 'Done', '{}')", keyspace, aggregate, id))
					}
					w.as("shop", source)
					_, stopShop := w.run()
					w.as("bank", "/bank")
					_, stopBank := w.run()
					insert("bank", "account-1", 100)
					time.Sleep(time.Minute)
					if err := stopBank(); err != nil {
						t.Fatal(err)
					}
					insert("bank", "account-1", 101) // while its relay is restarted
					insert("shop", "order-9", other)
					insert("shop", "account-1", other+1)
					time.Sleep(5 * time.Second)
					_, stopBank = w.run()
					time.Sleep(10 * time.Minute)
					if err := stopBank(); err != nil {
						t.Fatal(err)
					}
					if err := stopShop(); err != nil {
						t.Fatal(err)
					}
					found := 0
					for _, d := range w.consume("outbox.event.audit") {
						if d.Header(outbox.HeaderTable) == "bank.events" && d.ID.String() == "101" {
							found++
						}
					}
					if found != 1 {
						t.Errorf("event 101 of bank is in its topic %d times", found)
					}
				})
			})
		}
	}
}

// Two services with outboxes of their own number the events of the same aggregate, as a
// customer, and publish to one topic. A restart does not take the numbers of one for the
// other's.
func TestReadback_NumbersOfAnotherRelay(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"/shop", "/bank"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
				defer w.close()
				w.exec("CREATE KEYSPACE bank WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
				w.exec("CREATE TABLE bank.outbox_messages (aggregate_id uuid, seq bigint, event_id uuid, aggregate_type text, event_type text, payload blob, content_type text, headers map<text, text>, created_at timestamp, deliver_at timestamp, PRIMARY KEY (aggregate_id, seq)) WITH cdc = {'enabled': true}")
				bank, err := outbox.NewTable("bank", "outbox_messages")
				if err != nil {
					t.Fatal(err)
				}
				const topic = "OrderCreated"
				write := func(seq int64) {
					t.Helper()
					e := relaytest.Event(0, seq, topic)
					e.ID = outbox.NameID(e.ID.UUID(), "bank")
					b := w.session.Batch(0)
					if err := bank.Append(b, e); err != nil {
						t.Fatal(err)
					}
					if err := b.Exec(); err != nil {
						t.Fatal(err)
					}
				}
				w.cfg.Name, w.cfg.Source = "shop", source
				_, stopShop := w.run()
				w.cfg.Name, w.cfg.Source, w.cfg.TableKeyspace = "bank", "/bank", "bank"
				_, stopBank := w.run()
				for seq := range int64(3) {
					write(seq + 1)
				}
				for seq := range int64(50) {
					w.write(relaytest.Event(0, seq+1, topic))
				}
				time.Sleep(10 * time.Second)
				if err := stopBank(); err != nil {
					t.Fatal(err)
				}
				_, stopBank = w.run()
				time.Sleep(10 * time.Second)
				began := time.Now()
				for seq := range int64(10) {
					write(seq + 4)
					time.Sleep(time.Second)
				}
				time.Sleep(10 * time.Minute)
				if err := stopBank(); err != nil {
					t.Fatal(err)
				}
				if err := stopShop(); err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, d := range w.consume(topic) {
					if d.Header(outbox.HeaderTable) != "bank.outbox_messages" {
						continue
					}
					n++
					if lag := d.At.Sub(began); d.Sequence > 3 && lag > time.Minute {
						t.Errorf("seq %d was published after %s", d.Sequence, lag)
					}
				}
				if n != 13 {
					t.Errorf("%d records of 13 events", n)
				}
			})
		})
	}
}

// Records of other producers between the records of a relay, also without headers, do not hide the
// latter.
func TestReadback_ForeignRecordsBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
		defer w.close()
		const topic = "OrderCreated"
		_, stop := w.run()
		all := relaytest.Events(30, 2, topic)
		cl, err := kgo.NewClient(append(w.cfg.Kafka[:len(w.cfg.Kafka):len(w.cfg.Kafka)], kgo.SeedBrokers(w.cfg.Brokers...))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for i, e := range all {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
			foreign := []*kgo.Record{{Topic: topic, Key: e.Key(), Value: []byte("x")}}
			foreign = append(foreign, &kgo.Record{Topic: topic, Key: e.Key(), Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &all[(i+7)%len(all)], "/other")})
			if err := cl.ProduceSync(t.Context(), foreign...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run()
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		n := 0
		cl.AddConsumeTopics(topic)
		for seen := 0; seen < 3*len(all); {
			fetches := cl.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				seen++
				if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == outbox.HeaderSource && string(h.Value) == w.cfg.Source }) {
					n++
				}
			})
		}
		if ends, err := w.admin().ListEndOffsets(t.Context(), topic); err != nil {
			t.Error(err)
		} else {
			total := int64(0)
			ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
			if total != int64(3*len(all)) {
				t.Errorf("%d records, want %d", total, 3*len(all))
			}
		}
		if n != len(all) {
			t.Errorf("%d records of %d events", n, len(all))
		}
	})
}
