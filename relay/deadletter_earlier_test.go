package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// writeDeadLetter writes the dead letter of an event that was behind another one.
func (w *world) writeDeadLetter(e outbox.Event, written time.Time) {
	w.t.Helper()
	if _, err := w.deadLetters().Write(w.t.Context(), &dlq.DeadLetter{
		EventID: e.ID.UUID(), Table: "outbox.outbox_messages", AggregateType: e.AggregateType, AggregateID: e.AggregateID.String(), Sequence: e.Sequence, EventType: e.Type,
		Payload: e.Payload, Headers: e.Headers, CreatedAt: e.CreatedAt, WrittenAt: written.UnixMicro(), Topic: e.Type,
		Status: dlq.Blocked, ErrorClass: chains.ClassBehind, ErrorText: "behind", FirstFailedAt: time.Now(),
	}); err != nil {
		w.t.Fatal(err)
	}
}

// A relay was killed while it had event 3 of an aggregate with the producer, and event 4
// was a dead letter behind it. Both rows became visible behind the position of the sweep, so
// no reader offers event 3 again: the replay of the dead letters after it finds it, and so
// does the next event of the aggregate, also if event 4 was discarded since.
func TestDeadLetters_TheEventBeforeIsLateAndUnpublished(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOff, TailOn} {
		for _, tt := range []struct {
			name                string
			discarded, newEvent bool // dead letter 4 is discarded; event 5 is new, and no dead letter
		}{
			{"no later event", false, false},
			{"4 discarded, 5 a dead letter", true, false},
			{"4 discarded, 5 a new event", true, true},
		} {
			t.Run(fmt.Sprintf("tail %s/%s", tail, tt.name), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) { theEventBeforeIsLate(t, tail, tt.discarded, tt.newEvent) })
			})
		}
	}
}

func theEventBeforeIsLate(t *testing.T, tail string, discarded, newEvent bool) {
	w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Tail = tail })
	defer w.close()
	runFor := func(d time.Duration, events ...outbox.Event) {
		_, stop := w.run()
		for _, e := range events {
			w.write(e)
		}
		time.Sleep(d)
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	all := relaytest.Events(1, 5, "OrderUpdated")
	runFor(10*time.Minute, all[:2]...)
	late := time.Now().Add(-8 * time.Minute)
	w.writeAt(all[2], late)
	w.writeAt(all[3], late.Add(time.Second))
	w.writeDeadLetter(all[3], late.Add(time.Second))
	want := all[:4]
	if discarded {
		want = append(all[:3:3], all[4])
		if err := w.deadLetters().Discard(t.Context(), all[3].ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
			t.Fatal(err)
		}
		if !newEvent {
			w.writeAt(all[4], late.Add(2*time.Second))
			w.writeDeadLetter(all[4], late.Add(2*time.Second))
		}
	}
	if newEvent {
		runFor(10 * time.Minute) // the next relay does not load the settled dead letter
	}
	time.Sleep(2 * time.Hour)
	r, stop := w.run()
	time.Sleep(time.Minute)
	if newEvent {
		w.write(all[4])
	}
	time.Sleep(2 * time.Minute)
	if s := r.Status(); s.DeadLetters > 0 {
		t.Errorf("%d dead letters are open", s.DeadLetters)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	relaytest.CheckOrder(t, w.consume("OrderUpdated"), want)
}
