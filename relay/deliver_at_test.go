package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// dueTable makes a table whose rows have a time in the column due the relay's.
func (w *world) dueTable(ttl int) {
	w.t.Helper()
	w.exec("CREATE KEYSPACE IF NOT EXISTS shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
	w.exec("CREATE TABLE shop.due (id text PRIMARY KEY, event_type text, aggregate_id text, created_at timestamp, due timestamp, payload blob)" +
		fmt.Sprintf(" WITH cdc = {'enabled': true, 'ttl': %d}", ttl))
	w.cfg.TableKeyspace, w.cfg.Table = "shop", "due"
	w.cfg.Mapping = outbox.Mapping{
		Columns: map[string]string{"seq": outbox.NoColumn, "event_id": "id", "deliver_at": "due"}, AggregateType: "m", Unordered: true,
	}
}

// writeDue writes a row that is due after some time, as another program does.
func (w *world) writeDue(id string, after time.Duration) {
	w.t.Helper()
	now := time.Now()
	w.exec("INSERT INTO shop.due (id, event_type, aggregate_id, created_at, due, payload) VALUES (?, 'Due', ?, ?, ?, 0x01)", id, "a-"+id, now, now.Add(after))
}

// times returns when each event was published, by its id.
func (w *world) times(topic string) map[string]time.Time {
	out := make(map[string]time.Time)
	for _, d := range w.consume(topic) {
		if _, twice := out[d.ID.String()]; twice {
			w.t.Errorf("event %s is in the topic twice", d.ID.String())
		}
		out[d.ID.String()] = d.At
	}
	return out
}

// More events than the relay keeps in flight are due in an hour. Each is a dead letter with the
// reason, and they delay neither the others nor the start, and the relay is ready.
func TestDeliverAt_FarEventsAreDeadLetters(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.MaxInFlightRecords = 10*time.Second, 500 })
		defer w.close()
		w.dueTable(259200)
		r, stop := w.run()
		const far = 600
		for i := range far {
			w.writeDue(fmt.Sprint("far-", i), time.Hour)
		}
		time.Sleep(3 * time.Second)
		w.writeDue("now", 0)
		for range 30 {
			time.Sleep(time.Minute)
			if p := r.Status().Problems; len(p) > 0 {
				t.Fatalf("not ready: %q", p)
			}
		}
		if s := r.Status(); s.DeadLetters != far || s.InFlight != 0 {
			t.Errorf("%d dead letters, %d in flight, want %d and none", s.DeadLetters, s.InFlight, far)
		}
		if got := w.times("Due"); len(got) != 1 || got["now"].IsZero() {
			t.Errorf("published %v, want the event that is due alone", got)
		}
		l, err := w.deadLetters().Read(t.Context(), rows.IDOf("far-7"))
		if err != nil || !strings.Contains(l.ErrorText, "column due is ") || !strings.Contains(l.ErrorText, " after the write of the row, more than 10s") || !strings.Contains(l.ErrorText, "POST /v1/messages") {
			t.Errorf("dead letter %q, %v, want the column, the limit and the fix", l.ErrorText, err)
		}
		if l.DeliverAt.Sub(l.CreatedAt) != time.Hour || l.Status != dlq.Suspended {
			t.Errorf("dead letter for %s, %s, want its own time, and a person", l.DeliverAt, l.Status)
		}
		edit, err := w.deadLetters().Edit(t.Context(), l.EventID, dlq.Edit{Payload: []byte("now")}, dlq.Actor{Name: "ada", Reason: "test"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.times("Due"); len(got) != 2 || got[edit.String()].IsZero() {
			t.Errorf("published %v, want the edit %s too", got, edit)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Times on both sides of the limit, of rows that are inserted and updated, in a log that is
// shorter than the longest: each event is published once, not before its time, or a dead letter.
func TestDeliverAt_AboutTheLimit(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, restart := range []string{"none", "at once", "killed", "after"} {
			t.Run(fmt.Sprintf("tail %s, restart %s", tail, restart), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail = 10*time.Second, tail })
					defer w.close()
					w.dueTable(40)
					time.Sleep(time.Minute)
					_, stop := w.run()
					time.Sleep(20 * time.Second)
					if restart == "killed" {
						_ = stop()
					}
					began := time.Now()
					after := map[string]time.Duration{"past": -time.Hour, "now": 0, "near": 9 * time.Second, "limit": 10 * time.Second, "beyond": 10*time.Second + 5*time.Millisecond, "far": time.Minute}
					for id, d := range after {
						w.writeDue(id, d)
					}
					w.exec("UPDATE shop.due SET event_type = 'Due', aggregate_id = 'u', created_at = ?, due = ?, payload = 0x01 WHERE id = 'updated'", began, began.Add(9*time.Second))
					w.exec("UPDATE shop.due SET event_type = 'Due', aggregate_id = 'v', created_at = ?, due = ?, payload = 0x01 WHERE id = 'updated far'", began, began.Add(5*time.Minute))
					after["updated"], after["updated far"] = 9*time.Second, 5*time.Minute
					switch restart {
					case "killed":
						w.crashAfter(3 * time.Second)
						_, stop = w.run()
					case "after":
						time.Sleep(15 * time.Second)
						fallthrough
					case "at once":
						if err := stop(); err != nil {
							t.Error(err)
						}
						_, stop = w.run()
					}
					time.Sleep(49 * time.Second)
					if err := stop(); err != nil {
						t.Error(err)
					}
					_, stop = w.run() // the far ones are due
					time.Sleep(6 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					got, letters := w.times("Due"), w.open()
					for id, d := range after {
						_, dead := letters[rows.IDOf(id)]
						switch at, out := got[id]; {
						case out == dead, out != (d <= outbox.MaxDelay):
							t.Errorf("%s: published %t, dead letter %t", id, out, dead)
						case out && at.Before(began.Add(d).Truncate(time.Millisecond)):
							t.Errorf("%s: published %s after the write, want at least %s", id, at.Sub(began), d)
						case out && at.Sub(began) > 30*time.Second:
							t.Errorf("%s: published %s after the write", id, at.Sub(began))
						}
					}
				})
			})
		}
	}
}

// The clock of a writer dates its rows in the future: an event waits for MaxDelay at most, and
// does not fill the memory of the relay.
func TestDeliverAt_OfAWriterWhoseClockIsAhead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 10 * time.Second })
		defer w.close()
		_, stop := w.run()
		time.Sleep(10 * time.Second)
		ahead := time.Now().Add(4 * time.Second)
		for a, delay := range []time.Duration{9 * time.Second, 11 * time.Second} {
			w.exec("INSERT INTO outbox.outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type, payload, created_at, deliver_at) VALUES (?, 1, ?, 'order', 'Due', 0x01, ?, ?) USING TIMESTAMP ?",
				gocql.UUID{1, byte(a)}.String(), gocql.UUID{2, byte(a)}, ahead, ahead.Add(delay), ahead.UnixMicro())
		}
		wrote := time.Now()
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		got := w.consume("Due")
		if len(got) != 1 || got[0].At.Sub(wrote) > 16*time.Second || len(w.open()) != 1 {
			t.Errorf("published %+v and %d dead letters, want the first event within %s of its arrival", got, len(w.open()), outbox.MaxDelay)
		}
	})
}

// The time of an event is set by an UPDATE after its row was written. The event is published with
// the row that adds it, and once, also if a scan or another relay reads the changed row; an event
// that only a scan finds is refused, as if its row had been written so.
func TestDeliverAt_SetLater(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		for _, lacking := range []bool{false, true} {
			t.Run(fmt.Sprintf("tail %s, log lacks it %t", tail, lacking), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow, c.Tail, c.IdleCheckpoint = 10*time.Second, tail, 5*time.Second })
					defer w.close()
					_, stop := w.run()
					time.Sleep(30 * time.Second)
					if lacking {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
					e, next := relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(1, 2, "OrderUpdated")
					w.write(e)
					time.Sleep(30 * time.Second)
					w.exec("UPDATE outbox_messages SET deliver_at = ? WHERE aggregate_id = ? AND seq = 1", time.Now().Add(time.Hour), e.AggregateID)
					time.Sleep(30 * time.Second)
					if lacking {
						w.skipLog()
					} else if err := stop(); err != nil {
						t.Error(err)
					}
					scanAll(0)(&w.cfg)
					_, stop = w.run()
					time.Sleep(time.Minute)
					w.write(next)
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					got, letters := w.consume("OrderUpdated"), w.open()
					if !lacking && (len(got) != 2 || len(letters) != 0) {
						t.Errorf("published %v and %d dead letters, want both events once", got, len(letters))
					}
					if _, refused := letters[e.ID.UUID()]; lacking && (len(got) != 0 || len(letters) != 2 || !refused) {
						t.Errorf("published %v and dead letters %v, want the event and the one behind it", got, letters)
					}
				})
			})
		}
	}
}
