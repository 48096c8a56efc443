package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Parcels are the aggregates of a team that uses the outbox in its own batches. They have
// more events than orders.
const (
	parcel          = "parcel"
	parcelMoved     = "ParcelMoved"
	parcelDelivered = "ParcelDelivered"
)

// sameTimeFor is how long a batch is retried with its timestamp. Timestamps older than
// the relay's confidence window must not be written.
const sameTimeFor = 10 * time.Second

// tooLarge is the size of an event that every broker refuses.
const tooLarge = 40 << 10

// payload returns the payload of a step, sometimes one that is too large.
func (w *world) payload(rnd *rand.Rand, step int64) []byte {
	if !w.largeParcels.Load() || rnd.IntN(3) > 0 {
		return fmt.Appendf(nil, `{"step":%d}`, step)
	}
	filler := make([]byte, tooLarge/2) // incompressible; twice as long as text
	for i := range filler {
		filler[i] = byte(rnd.Uint32())
	}
	return fmt.Appendf(nil, `{"step":%d,"contents":"%x"}`, step, filler)
}

// writeGarbage writes a row of the outbox that is not an event.
func (w *world) writeGarbage() {
	id := outbox.NewID().UUID()
	w.ledger.spoilt(id) // regardless of the result: it may be stored later
	_ = w.session.Query("INSERT INTO "+events+" (aggregate_id, seq, aggregate_type) VALUES (?, 1, ?)", id.String(), parcel).Exec()
}

// parcelsAt starts pairs of parcels after these delays.
func (w *world) parcelsAt(times []time.Duration) {
	for i, d := range times {
		w.ledger.customers.Go(func() {
			time.Sleep(d)
			w.sendParcels(rand.New(rand.NewPCG(w.seed, 1<<32+uint64(i))))
		})
	}
}

// sendParcels moves two parcels together, some steps in quick succession and some after a
// delay. Each step is one logged batch with an event of both.
func (w *world) sendParcels(rnd *rand.Rand) {
	ids := [2]gocql.UUID{outbox.NewID().UUID(), outbox.NewID().UUID()}
	skews := append(w.settings.skews, 0)
	steps := int64(2 + rnd.IntN(7))
	for n := int64(1); n <= steps; n++ {
		kind := parcelMoved
		if n == steps || rnd.IntN(5) == 0 {
			kind = parcelDelivered // or an earlier step
		}
		var step []outbox.Event
		for _, id := range ids {
			step = append(step, outbox.Event{
				ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(id), Sequence: n, AggregateType: parcel, Type: kind,
				Payload: w.payload(rnd, n), CreatedAt: w.clock.Now().UTC().Truncate(time.Millisecond),
			})
		}
		w.store(rnd, gocql.LoggedBatch, skews[rnd.IntN(len(skews))], step...)
		if rnd.IntN(4) == 0 {
			time.Sleep(upTo(rnd, 10*time.Minute))
		} else {
			time.Sleep(upTo(rnd, 2*time.Second))
		}
	}
}

// busyEvery is the interval of events that keepBusy writes: shorter than the relay's read
// interval.
const busyEvery = 10 * time.Second

// keepBusy writes events of one parcel every few seconds for the given time, without
// logged batches: its CDC stream always has rows.
func (w *world) keepBusy(span time.Duration) {
	w.ledger.customers.Go(func() {
		rnd, id := rand.New(rand.NewPCG(w.seed, 'b')), outbox.NewID().UUID()
		for n, until := int64(1), time.Now().Add(span); time.Now().Before(until); n++ {
			w.store(rnd, gocql.UnloggedBatch, 0, outbox.Event{
				ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(id), Sequence: n, AggregateType: parcel, Type: parcelMoved,
				Payload: w.payload(rnd, n), CreatedAt: w.clock.Now().UTC().Truncate(time.Millisecond),
			})
			time.Sleep(busyEvery)
		}
	})
}

// store retries a batch of events until it is stored.
func (w *world) store(rnd *rand.Rand, kind gocql.BatchType, skew time.Duration, step ...outbox.Event) {
	began, at, refused := time.Now(), w.clock.Now().Add(skew), false
	for attempt := 0; ; attempt++ {
		b := w.session.Batch(kind)
		for _, e := range step {
			stmt, args, err := outbox.DefaultTable.Insert(e)
			if err != nil {
				w.t.Errorf("append an event of a parcel: %v", err)
				return
			}
			b.Query(stmt, args...)
		}
		switch {
		case refused:
			b.DefaultTimestamp(false) // the database's own
		case time.Since(began) > sameTimeFor:
			b.WithTimestamp(w.clock.Now().Add(skew).UnixMicro())
		default:
			b.WithTimestamp(at.UnixMicro())
		}
		err := b.Exec()
		if err == nil {
			for _, e := range step {
				w.ledger.recordMoved(e.ID.UUID())
			}
			w.ledger.recordStored(step...)
			return
		}
		// A timestamp that the log rejects: too far ahead, or of an earlier generation.
		if cqlcode.Of(err) == gocql.ErrCodeInvalid && !refused {
			refused = true
			continue
		}
		d := min(time.Second<<min(attempt, 10), 5*time.Minute)
		time.Sleep(d/2 + time.Duration(rnd.Int64N(int64(d))))
	}
}
