package sim

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// A row becomes visible an hour late, and its aggregate has no further writes, so no
// relay reads it. The verifier finds it, and the relay publishes it once.
func TestVerifier_FindsLateRows(t *testing.T) {
	seen := simulate(t, 61, nil, func(w *world) {
		w.startVerifier(10 * time.Minute)
		w.traffic(100, 2*time.Hour)
		time.Sleep(90 * time.Minute)
		for range 5 {
			w.writeLate(time.Hour)
		}
		time.Sleep(time.Hour)
		w.crashRelay() // drops the dedup index
		w.startRelay()
		w.writeLate(2 * time.Hour)
		time.Sleep(time.Minute)
	})
	wantOnce(t, seen)
}

// As above, and relays of another table and of another source have published events with the same
// ids and keys to the topics.
func TestVerifier_FindsLateRowsBesideOtherRecords(t *testing.T) {
	seen := simulate(t, 83, nil, func(w *world) {
		w.startVerifier(10 * time.Minute)
		s := w.newStranger()
		defer s.close()
		time.Sleep(90 * time.Minute)
		for range 5 {
			e := w.writeLate(time.Hour)
			s.send(ofAnother(&e, relay.Defaults().Source, "bank."+events), ofAnother(&e, "/another", keyspace+"."+events))
		}
		time.Sleep(time.Hour)
	})
	wantOnce(t, seen)
	if seen.foreign != 10 {
		t.Errorf("%d records of another table or source, want 10", seen.foreign)
	}
}

// writeLate writes the only event of an aggregate, so long after its write timestamp.
func (w *world) writeLate(late time.Duration) outbox.Event {
	w.t.Helper()
	id, aggregate, at := outbox.NewID().UUID(), outbox.NewID().UUID(), w.clock.Now().Add(-late)
	e := outbox.Event{ID: outbox.IDFromUUID(id), AggregateID: outbox.IDFromUUID(aggregate), Sequence: 1, AggregateType: parcel, Type: parcelMoved, Payload: []byte("{}"), CreatedAt: at}
	if err := w.session.Query("INSERT INTO "+events+" (aggregate_id, seq, event_id, aggregate_type, event_type, payload, created_at) VALUES (?, 1, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
		aggregate.String(), id, parcel, parcelMoved, []byte("{}"), at, at.UnixMicro()).Exec(); err != nil {
		w.t.Errorf("write a late event: %v", err)
		return e
	}
	w.ledger.isLate(id)
	w.ledger.recordMoved(id)
	return e
}
