package sim

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// writerKinds contains the rows of writers that do not use outbox.Append.
var writerKinds = []*kind{
	{
		name: "rows of other writers", most: 30 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			writes := []func(*lateParcel){(*lateParcel).writeRefused, (*lateParcel).twoOfOneNumber, (*lateParcel).twoOfOneID, (*lateParcel).typeInHeader}
			return w.nowAndThen(func() time.Duration { return upTo(r, 3*time.Minute) }, func() {
				p := w.newLateParcel(r)
				w.ledger.customers.Go(func() { writes[p.rnd.IntN(len(writes))](p) })
			})
		},
	},
}

// strangeRows are rows that are no events, and what their dead letters say.
var strangeRows = []struct {
	reason string
	change func(*outbox.Event)
}{
	{"created_at", func(e *outbox.Event) { e.CreatedAt = time.UnixMilli(e.CreatedAt.UnixMicro()) }},
	{"created_at", func(e *outbox.Event) { e.CreatedAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }},
	{"event_id", func(e *outbox.Event) { e.ID = outbox.ID{} }},
	// The database refuses an empty one.
	{"aggregate_id", func(e *outbox.Event) { e.AggregateID = outbox.IDFromText(strings.ToUpper(e.AggregateID.String())) }},
	{"seq", func(e *outbox.Event) { e.Sequence = 0 }},
	{"seq", func(e *outbox.Event) { e.Sequence = -7 }},
	{"event_type", func(e *outbox.Event) { e.Type = "" }},
	{"event_type", func(e *outbox.Event) { e.Type = "Parcel\nMoved" }},
}

// writeRefused writes a row that is no event, after one that is.
func (p *lateParcel) writeRefused() {
	p.onTime(p.rnd.IntN(2))
	e, row := p.event(), strangeRows[p.rnd.IntN(len(strangeRows))]
	row.change(&e)
	id := e.ID.UUID()
	if id == (gocql.UUID{}) {
		id = e.AggregateID.UUID()
	}
	p.insert(e)
	p.w.ledger.isNoEvent(id, e.AggregateID.UUID(), row.reason)
}

// twoOfOneNumber gives the number of an event to another one. Its row replaces the other's, unless
// the clock of its writer is behind.
func (p *lateParcel) twoOfOneNumber() {
	p.onTime(1)
	e := p.event()
	p.store(e)
	var behind time.Duration
	if p.rnd.IntN(2) == 0 {
		behind = upTo(p.rnd, 5*time.Second) // at the same time
	} else {
		time.Sleep(upTo(p.rnd, 5*time.Minute))
		p.onTime(p.rnd.IntN(2))
	}
	p.w.ledger.isReplaced(&e)
	e.ID, e.CreatedAt = outbox.NewID(), p.w.clock.Now().UTC().Truncate(time.Millisecond)
	p.w.ledger.isReplaced(&e)
	p.w.store(p.rnd, gocql.UnloggedBatch, -behind, e)
	p.onTime(1)
}

// twoOfOneID gives the id of an event to one of another aggregate.
func (p *lateParcel) twoOfOneID() {
	e := p.event()
	p.w.ledger.isTwin(e.ID.UUID())
	p.store(e)
	p.onTime(1)
	time.Sleep(upTo(p.rnd, 5*time.Minute))
	e.AggregateID = outbox.NewID()
	p.insert(e)
}

// typeInHeader writes an event that has its media type in a header, in any case.
func (p *lateParcel) typeInHeader() {
	e := p.event()
	e.Headers = map[string]string{[]string{"Content-Type", "content-type", "CONTENT-TYPE"}[p.rnd.IntN(3)]: "text/xml"}
	p.insert(e)
	p.w.ledger.hasType(e.ID.UUID(), "text/xml")
	p.w.ledger.recordMoved(e.ID.UUID())
}

// insert stores a row without the checks of outbox.Append; a zero id is stored as it is.
func (p *lateParcel) insert(e outbox.Event) {
	for attempt := range 1000 {
		err := p.w.session.Query("INSERT INTO "+events+" (aggregate_id, seq, event_id, aggregate_type, event_type, payload, headers, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			e.AggregateID, e.Sequence, e.ID.UUID(), e.AggregateType, e.Type, e.Payload, e.Headers, e.CreatedAt).DefaultTimestamp(false).Exec()
		if err == nil {
			return
		}
		time.Sleep(min(time.Second<<min(attempt, 10), time.Minute))
	}
	p.w.t.Errorf("a row of another writer is not stored")
}

// ofContradiction reports whether a record is of an event whose row was replaced, or of one whose
// id or number another event has.
func (w *world) ofContradiction(e *outbox.Event) bool {
	l := w.ledger
	return l.replaced[e.ID.UUID()] || l.twins[e.ID.UUID()] || l.contradicting[place{e.AggregateID.UUID(), e.Sequence}]
}

// checkOtherWriters: a row that is no event is a dead letter with a reason and in no topic, one
// of two events with one id is published, and a media type in a header counts.
func (w *world) checkOtherWriters(e *evidence) {
	w.t.Helper()
	published := make(map[gocql.UUID]outbox.Event)
	for _, r := range e.records {
		published[r.ID.UUID()] = r.Event
	}
	reasons := make(map[string]string)
	for id, l := range e.deadLetters {
		reasons[id.String()] += l.reason
		reasons[l.aggregate] += l.reason
	}
	for id, reason := range w.ledger.noEvents {
		if !strings.Contains(reasons[id.String()], reason) {
			w.t.Errorf("row %s is no event; its dead letter says %q, want %s", id, reasons[id.String()], reason)
		}
		if _, ok := published[id]; ok {
			w.t.Errorf("row %s is no event and is in a topic", id)
		}
	}
	for id := range w.ledger.twins {
		if _, ok := published[id]; !ok && !e.deadLetters[id].ended() {
			w.t.Errorf("event %s, whose id another one has, is in no topic", id)
		}
	}
	for id, want := range w.ledger.contents {
		if got, ok := published[id]; ok && got.ContentType != want {
			w.t.Errorf("event %s has the media type %q in a header and is published as %q", id, want, got.ContentType)
		}
	}
}
