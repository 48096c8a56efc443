package sim

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// lateKinds contains the kinds with rows that become visible long after their write time,
// such as decided conditional writes and writes of replicas that were down, and with
// omitted numbers.
//
// The relay determines from its topics which events are published, so it must be able to
// read them. Each aggregate receives a last write: only that reveals a late row.
var lateKinds = []*kind{
	{
		name: "rows hours late", most: time.Hour, when: readsTopics,
		begin: func(r *rand.Rand, w *world) func() {
			for range 1 + r.IntN(3) {
				p := w.newLateParcel(r)
				w.ledger.customers.Go(func() {
					for range 1 + p.rnd.IntN(3) {
						p.onTime(p.rnd.IntN(3))
						time.Sleep(upTo(p.rnd, 20*time.Minute))
						p.late()
						time.Sleep(upTo(p.rnd, 10*time.Minute))
						p.onTime(1)
					}
				})
			}
			return func() {}
		},
	},
	{
		name: "rows late across a restart", most: 30 * time.Minute, when: readsTopics,
		excluding: []string{"relay restarts", "relay crashes", "database frozen", "database gone", "rows late across a restart"},
		begin: func(r *rand.Rand, w *world) func() {
			if !w.relayRuns() {
				return func() {}
			}
			p, before, after := w.newLateParcel(r), r.IntN(2) == 0, upTo(r, 10*time.Minute)
			p.onTime(1 + r.IntN(2))
			time.Sleep(5*time.Minute + upTo(r, 5*time.Minute)) // beyond the read-back of the next start
			if before {
				p.late()
			}
			w.stopRelay()
			return func() {
				if !before {
					p.late()
				}
				w.launchRelay()
				w.ledger.customers.Go(func() {
					time.Sleep(after)
					p.onTime(1)
				})
			}
		},
	},
	{
		name: "numbers with holes", most: 20 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			p := w.newLateParcel(r)
			var over atomic.Bool
			w.ledger.customers.Go(func() {
				for !over.Load() {
					time.Sleep(upTo(p.rnd, 10*time.Second))
					p.next += int64(p.rnd.IntN(3))
					p.onTime(1)
				}
			})
			return func() { over.Store(true) } // the database may still be down
		},
	},
}

// readsTopics selects plans in which the relay can determine which events are published.
// A scan of the outbox table treats events older than its rows as published.
func readsTopics(p *plan) bool { return p.ReadBack && p.LogTTL == 0 && !p.LogChanges && !p.Denied }

// lateParcel is an aggregate with late rows.
type lateParcel struct {
	w    *world
	rnd  *rand.Rand
	id   gocql.UUID
	kind string // of its next event
	next int64
}

func (w *world) newLateParcel(r *rand.Rand) *lateParcel {
	return &lateParcel{w: w, rnd: rand.New(rand.NewPCG(r.Uint64(), 'l')), id: outbox.NewID().UUID(), kind: parcelMoved, next: 1}
}

func (p *lateParcel) event() outbox.Event {
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(p.id), Sequence: p.next, AggregateType: parcel, Type: p.kind,
		Payload: p.w.payload(p.rnd, p.next), CreatedAt: p.w.clock.Now().UTC().Truncate(time.Millisecond),
	}
	p.next++
	return e
}

// onTime stores n events with current write times.
func (p *lateParcel) onTime(n int) {
	for range n {
		p.store(p.event())
	}
}

// store stores an event with a current write time.
func (p *lateParcel) store(e outbox.Event) { p.w.store(p.rnd, gocql.UnloggedBatch, 0, e) }

// late stores an event with a write time of minutes or hours ago. The log rejects a write
// time of an earlier generation; the event is then stored on time.
func (p *lateParcel) late() {
	e := p.event()
	at := p.w.clock.Now().Add(-p.w.settings.relay.ConfidenceWindow - time.Minute - upTo(p.rnd, max(time.Since(p.w.began)-10*time.Minute, 0))).UnixMicro()
	at = max(at, p.w.began.Add(30*time.Second-p.w.settings.hostAhead).UnixMicro()) // the table has no streams before its creation
	p.w.ledger.isLate(e.ID.UUID())
	for {
		stmt, args, err := outbox.DefaultTable.Insert(e)
		if err != nil {
			p.w.t.Errorf("append a late event: %v", err)
			return
		}
		err = p.w.session.Query(stmt, args...).WithTimestamp(at).Exec()
		switch {
		case err == nil:
			p.w.ledger.recordMoved(e.ID.UUID())
			return
		case cqlcode.Of(err) == gocql.ErrCodeInvalid:
			p.w.store(p.rnd, gocql.UnloggedBatch, 0, e)
			return
		}
		time.Sleep(time.Second + upTo(p.rnd, time.Minute))
	}
}
