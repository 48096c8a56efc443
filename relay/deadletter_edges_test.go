package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func without(all []outbox.Event, ids ...gocql.UUID) []outbox.Event {
	return slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool { return slices.Contains(ids, e.ID.UUID()) })
}

// What an operator has discarded is not published, though its row in the log is
// still to come: to this relay's sweep, or to the next relay's readers.
func TestDeadLetters_DiscardedStaysUnpublished(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for _, how := range []string{"goes on", "is killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = time.Minute
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
				})
				defer w.close()
				all := relaytest.Events(3, 4, "OrderUpdated")
				bad := all[3] // aggregate 0, number 2
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				time.Sleep(5 * time.Second)
				for _, e := range all {
					w.write(e)
				}
				time.Sleep(5 * time.Second)
				end()
				if err := w.deadLetters().Discard(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if how == "is killed" {
					_ = stop()
					_, stop = w.run()
				}
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), without(all, bad.ID.UUID()))
			})
		})
	}
}

// An unblocked dead letter stays behind while its aggregate proceeds. A relay that starts then does
// not take the number of the dead letter for the aggregate's last.
func TestDeadLetters_UnblockedBeforeARestart(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.ReadBackMargin = time.Second
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		all := relaytest.Events(2, 10, "OrderUpdated")
		bad := all[2] // aggregate 0, number 2
		w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
		_, stop := w.run()
		for _, e := range all[:14] {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		if err := w.deadLetters().Unblock(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // the checkpoints are past it
		_ = stop()
		time.Sleep(time.Minute)
		_, stop = w.run()
		time.Sleep(10 * time.Second)
		for _, e := range all[14:] {
			w.write(e)
		}
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), without(all, bad.ID.UUID()))
	})
}

// A row that is no event is none either when it comes behind another dead
// letter, or while the breaker is open: what could be read of it is not published.
func TestDeadLetters_ABadRowBehindAnother(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
		defer w.close()
		all := relaytest.Events(2, 4, "OrderUpdated")
		bad, row, spilled := all[2], all[4], all[5] // of aggregate 0 numbers 2 and 3, of aggregate 1 number 3
		w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
		r, stop := w.run()
		put := func(e outbox.Event) {
			t.Helper()
			if err := w.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id, event_type, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)",
				e.AggregateID, e.Sequence, e.ID, e.Type, e.Payload, e.CreatedAt).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range all[:4] {
			w.write(e)
		}
		put(row)
		w.write(all[6])
		time.Sleep(20 * time.Second)
		end := w.unreachable()
		for i := range 30 { // opens the breaker
			w.write(relaytest.Event(100+i, 1, "OrderUpdated"))
			time.Sleep(time.Second)
		}
		put(spilled)
		time.Sleep(10 * time.Second)
		end()
		time.Sleep(3 * time.Minute)
		if err := w.deadLetters().Discard(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for _, id := range []gocql.UUID{row.ID.UUID(), spilled.ID.UUID()} {
			if l, err := w.deadLetters().Read(t.Context(), id); err != nil || l.Status != dlq.Suspended || l.ErrorClass != chains.ClassUndecodable {
				t.Errorf("Read() of the row = %s, %s, %v, want it suspended and undecodable", l.Status, l.ErrorClass, err)
			}
		}
		if s := r.Status(); s.DeadLetters != 3 {
			t.Errorf("%d dead letters, want the two rows and what is behind the first", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		for _, d := range w.consume("OrderUpdated") {
			if d.ID == row.ID || d.ID == spilled.ID {
				t.Errorf("the row that is no event was published: %+v", d.Event)
			}
		}
	})
}

// However many aggregates wait when the breaker opens, no more is spilled than the limit allows.
func TestDeadLetters_TheLimitHoldsForManyAggregates(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.SpillLimit, c.BreakerOpen = 20, 5*time.Minute
		})
		defer w.close()
		w.cfg.Topics = map[string]string{"OrderUpdated": "OrderUpdated"}
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		end := w.unreachable()
		all := relaytest.Events(100, 2, "OrderUpdated")
		for _, e := range all[:100] {
			w.write(e)
		}
		time.Sleep(time.Minute)
		if s := r.Status(); s.Spilled != 20 || len(w.open()) != 20 {
			t.Errorf("spilled %d, the table has %d, want 20: the limit", s.Spilled, len(w.open()))
		}
		_ = stop()
		end()
		r, stop = w.run()
		time.Sleep(5 * time.Minute)
		for _, e := range all[100:] {
			w.write(e)
		}
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A relay died between publishing a dead letter and recording that, and an operator requested
// another replay in the meantime: the event is found in its topic, and not published twice.
func TestDeadLetters_AReplayThatIsOutIsFound(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
		defer w.close()
		all := relaytest.Events(2, 3, "OrderUpdated")
		bad := all[2] // aggregate 0, number 2
		end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
		_, stop := w.run()
		for _, e := range all {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		_ = stop()
		end()
		cl, err := kgo.NewClient(append(slices.Clone(w.cfg.Kafka), kgo.SeedBrokers(w.cfg.Brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))...)
		if err != nil {
			t.Fatal(err)
		}
		err = cl.ProduceSync(t.Context(), &kgo.Record{
			Topic: "OrderUpdated", Key: bad.Key(), Value: bad.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &bad, w.cfg.Source),
		}).FirstErr()
		cl.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID()); err != nil || l.Outcome.Kind != dlq.OutcomeFound {
			t.Errorf("Read() = %s, %v, want found", l.Outcome.Kind, err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}
