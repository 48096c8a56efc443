package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A row that is no event is a dead letter with what could be read of it. When
// somebody mends the row, a replay publishes it, before the events behind it.
func TestDeadLetters_ARowThatIsNoEvent(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		r, stop := w.run()
		all := relaytest.Events(2, 4, "OrderUpdated")
		bad := all[2] // aggregate 0, number 2
		if err := w.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)",
			bad.AggregateID, bad.Sequence, bad.ID, bad.AggregateType, bad.Payload, bad.CreatedAt).Exec(); err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.ID != bad.ID {
				w.write(e)
			}
		}
		time.Sleep(20 * time.Second)
		deadLetter, err := w.deadLetters().Read(t.Context(), bad.ID.UUID())
		if err != nil || deadLetter.Status != dlq.Suspended || deadLetter.ErrorClass != chains.ClassUndecodable || deadLetter.Sequence != 2 ||
			string(deadLetter.Payload) != string(bad.Payload) || !strings.Contains(deadLetter.ErrorText, "event_type") {
			t.Fatalf("Read() = %+v, %v, want what could be read of the row, and the column", deadLetter, err)
		}
		if s := r.Status(); s.DeadLetters != 3 || s.BlockedAggregates != 1 || len(s.Problems) > 0 {
			t.Errorf("Status() = %+v, want the row and two behind it", s)
		}
		by := dlq.Actor{Name: "ada", Reason: "test"}
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.DeadLetters != 3 {
			t.Errorf("%d dead letters after a replay of what was not mended, want 3", s.DeadLetters)
		}
		// While the row cannot be read nothing new is known of it.
		readable := w.readsFail("outbox_messages")
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		readable()
		time.Sleep(time.Minute)
		if l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID()); err != nil || l.ErrorClass != chains.ClassUndecodable || l.Status != dlq.Suspended {
			t.Errorf("Read() = %s, %s, %v after a replay while the database did not answer, want it undecodable still, suspended", l.ErrorClass, l.Status, err)
		}
		if err := w.session.Query("UPDATE outbox_messages SET event_type = ? WHERE aggregate_id = ? AND seq = ?", bad.Type, bad.AggregateID, bad.Sequence).Exec(); err != nil {
			t.Fatal(err)
		}
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters after the row was mended", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A replay of a mended row that the broker does not take is tried again with the
// row, not with what could be read of it when it was none.
func TestDeadLetters_ACorrectedRowStaysCorrected(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.BreakerFailures, c.BreakerMinCalls = 1000, 1000 })
		defer w.close()
		r, stop := w.run()
		bad := relaytest.Event(0, 1, "OrderUpdated")
		if err := w.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id, aggregate_type, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)",
			bad.AggregateID, bad.Sequence, bad.ID, bad.AggregateType, bad.Payload, bad.CreatedAt).Exec(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if err := w.session.Query("UPDATE outbox_messages SET event_type = ? WHERE aggregate_id = ? AND seq = ?", bad.Type, bad.AggregateID, bad.Sequence).Exec(); err != nil {
			t.Fatal(err)
		}
		fault := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError, Count: -1})
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID()); err != nil || l.ErrorClass != chains.ClassAttemptsUsed {
			t.Fatalf("Read() = %s, %v, want a replay that used up its attempts", l.ErrorClass, err)
		}
		fault.Remove()
		time.Sleep(10 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), []outbox.Event{bad})
	})
}
