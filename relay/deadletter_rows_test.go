package relay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A row that is no event is a dead letter with what could be read of it. When somebody corrects the
// row, a replay publishes it, before the events behind it.
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

// A replay of a corrected row that the broker rejects is retried with the row, not with the values
// that could be read when it was no event.
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

// A row without an id is a dead letter under an id that the relay derives. When its service gives it
// one, the event is published once, under that id, whichever reads the row first: a replay, the log
// or a scan of the table, of this process or the next one.
func TestDeadLetters_ARowThatGetsItsID(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, whole := range []bool{false, true} { // the statement that gives it has all columns
			for _, after := range []time.Duration{0, time.Minute} { // of the replay, after that statement
				for _, relaxed := range []bool{false, true} {
					t.Run(fmt.Sprintf("tail %s, whole row %t, replay after %s, relaxed %t", tail, whole, after, relaxed), func(t *testing.T) {
						t.Parallel()
						inBubble(t, func(t *testing.T) {
							w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
								c.Tail, c.ConfidenceWindow, c.DedupMemory = tail, 20*time.Second, 100*dedup.BytesPerEvent
								if relaxed {
									c.Ordering = OrderingRelaxed
								}
							})
							defer w.close()
							began := time.Now()
							_, stop := w.run()
							time.Sleep(30 * time.Second)
							all := relaytest.Events(1, 4, "OrderUpdated")
							bad := all[1]
							w.write(all[0])
							w.exec("INSERT INTO outbox_messages (aggregate_id, seq, aggregate_type, event_type, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)",
								bad.AggregateID, bad.Sequence, bad.AggregateType, bad.Type, bad.Payload, bad.CreatedAt)
							w.write(all[2])
							time.Sleep(time.Minute)
							derived := rows.RowID("outbox.outbox_messages", bad.AggregateID.String(), bad.Sequence, 0, 0).UUID()
							if l, ok := w.open()[derived]; !ok || l.Status != dlq.Suspended {
								t.Fatalf("the dead letters are %+v, want one of the row, for a person", w.open())
							}
							if whole {
								w.write(bad)
							} else {
								w.exec("UPDATE outbox_messages SET event_id = ? WHERE aggregate_id = ? AND seq = ?", bad.ID, bad.AggregateID, bad.Sequence)
							}
							time.Sleep(after)
							ada := dlq.Actor{Name: "ada", Reason: "test"}
							for range 2 { // a second one for the row that was refused again
								for id, l := range w.open() {
									if l.Status == dlq.Suspended {
										if err := w.deadLetters().Replay(t.Context(), id, ada); err != nil {
											t.Error(err)
										}
									}
								}
								time.Sleep(time.Minute)
							}
							for range 2 {
								if err := stop(); err != nil {
									t.Error(err)
								}
								w.cfg.BackfillFrom = began.Add(-time.Minute)
								_, stop = w.run()
								time.Sleep(2 * time.Minute)
							}
							w.write(all[3])
							time.Sleep(time.Minute)
							if left := w.open(); len(left) > 0 {
								t.Errorf("%d dead letters are left: %+v", len(left), left)
							}
							if err := stop(); err != nil {
								t.Error(err)
							}
							got := w.consume("OrderUpdated")
							if relaxed {
								slices.SortFunc(got, func(a, b relaytest.Delivered) int { return cmp.Compare(a.Sequence, b.Sequence) })
							}
							relaytest.CheckOrder(t, got, all)
						})
					})
				}
			}
		}
	}
}

// Two rows get one id: one of them is published under it, and the other stays a dead letter whose
// error names the id, however the replays follow each other.
func TestDeadLetters_RowsThatGetOneID(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("replayed together %t", together), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
				defer w.close()
				_, stop := w.run()
				time.Sleep(30 * time.Second)
				all := relaytest.Events(2, 1, "OrderUpdated")
				for _, e := range all {
					w.exec("INSERT INTO outbox_messages (aggregate_id, seq, aggregate_type, event_type, payload, created_at) VALUES (?, ?, ?, ?, ?, ?)",
						e.AggregateID, e.Sequence, e.AggregateType, e.Type, e.Payload, e.CreatedAt)
				}
				time.Sleep(time.Minute)
				if open := w.open(); len(open) != 2 {
					t.Fatalf("the dead letters are %+v, want one of each row", open)
				}
				for _, e := range all {
					w.exec("UPDATE outbox_messages SET event_id = ? WHERE aggregate_id = ? AND seq = ?", all[0].ID, e.AggregateID, e.Sequence)
				}
				for id := range w.open() {
					if err := w.deadLetters().Replay(t.Context(), id, dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
						t.Error(err)
					}
					if !together {
						time.Sleep(time.Minute)
					}
				}
				time.Sleep(time.Minute)
				if got := w.consume("OrderUpdated"); len(got) != 1 || got[0].ID != all[0].ID {
					t.Errorf("the topic has %+v, want one event with the id", got)
				}
				left := w.open()
				for id := range left {
					l, err := w.deadLetters().Read(t.Context(), id)
					if err != nil || l.ErrorClass != chains.ClassUndecodable || !strings.Contains(l.ErrorText, "event_id is the id of another event") {
						t.Errorf("the dead letter that is left has the error %q, %v", l.ErrorText, err)
					}
				}
				if len(left) != 1 {
					t.Errorf("%d dead letters are left, want that of the row that is not published", len(left))
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
