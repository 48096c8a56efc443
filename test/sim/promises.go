package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// verify checks the promises by the evidence.
func (w *world) verify() {
	w.t.Helper()
	w.checkOrders()
	e := w.gather()
	w.seen.events, w.seen.records = len(e.outbox), len(e.records)
	for _, h := range e.streams {
		w.seen.repeatedRows += len(h.rows)
	}
	w.seen.repeatedRows = max(0, w.seen.repeatedRows-len(e.outbox)) // some may have expired
	w.seen.missed, w.seen.foreign = e.countMissed(), w.tap.foreign
	w.checkTables(e)
	w.checkDeadLetters(e)
	w.checkTopics(e)
	w.checkSequence(e)
	w.checkCheckpoints(e)
	w.checkDuplicates(e)
	w.checkRepeated(e)
	w.checkOtherWriters(e)
}

// checkOrders reads every acknowledged order. The read also completes interrupted
// requests.
func (w *world) checkOrders() {
	w.t.Helper()
	for id, p := range w.ledger.orders {
		o, err := w.services[0].Get(context.Background(), id)
		if err != nil {
			w.t.Errorf("order %s was acknowledged; Get() error = %v", id, err)
			continue
		}
		want := orders.StatusPlaced
		if p.cancelled {
			want = orders.StatusCancelled
		}
		if o.Status != want || !o.Total.Equal(p.placed.Total) || o.Invoice != p.placed.Invoice {
			w.t.Errorf("order %s is %s of %s for %s, want the acknowledged %s of %s for %s",
				id, o.Status, o.Invoice, o.Total, want, p.placed.Invoice, p.placed.Total)
		}
	}
}

// checkTables: an order is stored if and only if its events are, and nothing that was
// reported as not stored is stored.
func (w *world) checkTables(e *evidence) {
	w.t.Helper()
	last := make(map[gocql.UUID]int64) // last sequence by order
	count := make(map[gocql.UUID]int64)
	for _, ev := range e.outbox {
		if ev.AggregateType == parcel {
			continue
		}
		last[ev.AggregateID.UUID()] = max(last[ev.AggregateID.UUID()], ev.Sequence)
		count[ev.AggregateID.UUID()]++
	}
	for id, o := range e.orders {
		if last[id] != o.version || count[id] != o.version {
			w.t.Errorf("order %s is at version %d, its outbox has %d events up to seq %d", id, o.version, count[id], last[id])
		}
		if ev, ok := e.outbox[o.event]; !ok || ev.AggregateID.UUID() != id || ev.Sequence != o.version {
			w.t.Errorf("order %s refers to event %s, which is not its last one", id, o.event)
		}
	}
	for id := range last {
		if _, ok := e.orders[id]; !ok {
			w.t.Errorf("order %s has events but is not stored", id)
		}
	}
	for id := range w.ledger.parcels {
		if _, ok := e.outbox[id]; !ok && !w.ledger.replaced[id] {
			w.t.Errorf("acknowledged event %s of a parcel is not in the outbox", id)
		}
	}
	for id := range w.ledger.nothing {
		if _, ok := e.orders[id]; ok {
			w.t.Errorf("order %s is stored but was reported as not stored", id)
		}
	}
}

// checkTopics: every event is in the topic of its type, unchanged, and topics contain
// nothing else. An event that was in a topic is published, also if it was deleted from there.
//
// A row that became visible late is not published if its partition has lost records: it may
// have been among them. What other partitions have lost does not matter.
func (w *world) checkTopics(e *evidence) {
	w.t.Helper()
	there := make(map[gocql.UUID]bool)
	for _, r := range e.records {
		there[r.ID.UUID()] = true
		ev, ok := e.outbox[r.ID.UUID()]
		if w.ofContradiction(&r.Event) {
			continue
		}
		switch {
		case !ok:
			w.t.Errorf("event %s (order %s, seq %d) is in a topic but not in the outbox", r.ID, r.AggregateID, r.Sequence)
		case r.topic != ev.Type || r.AggregateID != ev.AggregateID || r.Sequence != ev.Sequence || !bytes.Equal(r.Payload, ev.Payload):
			w.t.Errorf("event %s is in topic %s as order %s, seq %d, %s; the outbox has %+v",
				r.ID, r.topic, r.AggregateID, r.Sequence, r.Payload, ev)
		}
	}
	lost := 0
	for id, ev := range e.outbox {
		if there[id] || e.deadLetters[id].ended() || w.ledger.late[id] && w.tap.emptied(&ev) {
			continue
		}
		if lost++; lost <= 10 {
			w.t.Errorf("event %s (order %s, seq %d, %s) is in no topic", id, ev.AggregateID, ev.Sequence, ev.Type)
		}
	}
	if lost > 0 {
		w.t.Errorf("%d of %d events lost", lost, len(e.outbox))
	}
}

// madeTopic is a topic between two deletions.
type madeTopic struct {
	name string
	made int
}

// checkSequence: the broker received the events of an order in sequence, the ones of one
// topic in one partition. It ignores duplicates.
func (w *world) checkSequence(e *evidence) {
	w.t.Helper()
	seen := make(map[gocql.UUID]bool)
	last := make(map[gocql.UUID]record)
	home := make(map[gocql.UUID]map[madeTopic]int32)
	for _, r := range e.records {
		if home[r.AggregateID.UUID()] == nil {
			home[r.AggregateID.UUID()] = make(map[madeTopic]int32)
		}
		topic := madeTopic{r.topic, r.made}
		if in, ok := home[r.AggregateID.UUID()][topic]; ok && in != r.number {
			w.t.Errorf("order %s is in partitions %d and %d of topic %s", r.AggregateID, in, r.number, r.topic)
		}
		home[r.AggregateID.UUID()][topic] = r.number
		if seen[r.ID.UUID()] {
			continue
		}
		seen[r.ID.UUID()] = true
		if e.deadLetters[r.ID.UUID()].unblocked || w.ofContradiction(&r.Event) {
			continue // unblocked out of order, or with the number of another one
		}
		if before, ok := last[r.AggregateID.UUID()]; ok && before.Sequence >= r.Sequence {
			w.t.Errorf("order %s: seq %d was published at %s, after seq %d at %s",
				r.AggregateID, r.Sequence, w.after(r.at), before.Sequence, w.after(before.at))
		}
		last[r.AggregateID.UUID()] = r
	}
}

// checkCheckpoints: no saved checkpoint had passed an event of its relay that was neither
// stored by the broker nor a dead letter.
func (w *world) checkCheckpoints(e *evidence) {
	w.t.Helper()
	first := e.firstSeen()
	for id, h := range e.streams {
		for name, saves := range h.byRelay() {
			w.checkSaves(e, first, fmt.Sprintf("%s, stream %x", name, id), h.rows, saves, carriedBy(name))
		}
	}
}

func (w *world) checkSaves(e *evidence, first map[gocql.UUID]time.Time, what string, rows []logRow, saves []save, carries func(gocql.UUID) bool) {
	w.t.Helper()
	i := 0
	var latest time.Time // when the broker stored the last of rows[:i]
	var which gocql.UUID
	reached := gocql.UUID{}
	for _, s := range saves {
		if s.late {
			reached = s.position // a relay that starts now begins here
			continue
		}
		if scyllacdc.CompareTimeUUID(s.position, reached) < 0 {
			w.t.Errorf("%s: at %s the checkpoint went back from %s to %s",
				what, w.after(s.at), w.after(reached.Time()), w.after(s.position.Time()))
		}
		reached = s.position
		for ; i < len(rows) && scyllacdc.CompareTimeUUID(rows[i].time, s.position) <= 0; i++ {
			if !carries(rows[i].aggregate) || w.ledger.late[rows[i].event] || rows[i].event == (gocql.UUID{}) {
				continue // a late row became visible after the checkpoint passed it; another one is no event
			}
			at, ok := first[rows[i].event]
			if !ok && w.hidden(e, &rows[i], s.at) {
				continue
			}
			if !ok {
				at = time.Now()
			}
			if l, dead := e.deadLetters[rows[i].event]; dead && l.buried.Before(at) {
				at = l.buried
			}
			if at.After(latest) && !e.scanCovers(s.at, rows[i].time.Time(), at) {
				latest, which = at, rows[i].event
			}
		}
		if latest.After(s.at) {
			w.t.Errorf("%s: the checkpoint saved at %s had passed event %s, which was published or a dead letter at %s",
				what, w.after(s.at), which, w.after(latest))
			break
		}
	}
}

// hidden reports whether the log was altered when an event was written, and the outbox table, of which
// the relay then reads the rows of that time, has another event with its number in its place
// (docs/promises.md).
func (w *world) hidden(e *evidence, row *logRow, saved time.Time) bool {
	_, stored := e.outbox[row.event]
	return !stored && w.ledger.replaced[row.event] && e.scanCovers(saved, row.time.Time(), row.time.Time())
}

// scanCovers reports whether a scan of the outbox table covered an event.
func (e *evidence) scanCovers(at, written, published time.Time) bool {
	return slices.ContainsFunc(e.scans, func(s scan) bool { return s.covers(at, written, published) })
}

// wasScanned reports whether a scan that began after a relay's end covered a row of an event that was
// published again.
func (e *evidence) wasScanned(id gocql.UUID, ended, again time.Time) bool {
	for _, h := range e.streams {
		for _, row := range h.rows {
			if row.event == id && slices.ContainsFunc(e.scans, func(s scan) bool { return s.started.After(ended) && s.covers(again, row.time.Time(), again) }) {
				return true
			}
		}
	}
	return false
}

// checkDuplicates: an event is in its topic once, also after crashes. It may be published again
// when its record has been deleted.
//
// A relay may be unable to read back earlier records, because reads are denied, the broker
// has not executed the requests yet, or there are more than it can remember. Then an event has a duplicate only if a relay
// ended between its publication and the checkpoint that passed all of its rows, or, with
// a tail reader, soon after its publication; and one relay never publishes it twice. Soon
// means: the next tail reader begins at the oldest checkpoint of all streams. The
// checkpoint of an idle stream is saved once a minute, and is then older by the
// confidence window, the clock differences and the reader's step. The next relay may also have
// scanned the table from there: a scan begins at the oldest checkpoint before the log was altered.
//
// A request that the broker held back beyond the time limit of its client, and executed after
// another one with the same event was answered with an error, makes a duplicate (docs/promises.md).
func (w *world) checkDuplicates(e *evidence) {
	w.t.Helper()
	copies := make(map[gocql.UUID][]record)
	for _, r := range e.records {
		copies[r.ID.UUID()] = append(copies[r.ID.UUID()], r)
	}
	covered := e.lastCovered()
	readsBack := w.settings.relay.ReadBackMargin >= 0 && !w.kafka.unread && !w.forgot.Load() && !slices.ContainsFunc(w.relays, func(p *process) bool { return p.stranded })
	for _, all := range copies {
		all = withoutDeleted(all)
		if w.ofContradiction(&all[0].Event) {
			continue
		}
		w.seen.duplicates += len(all) - 1
		for _, wrong := range w.unexplained(e, all, covered, readsBack) {
			w.t.Error(wrong)
		}
	}
}

// unexplained says which records of an event nothing explains.
func (w *world) unexplained(e *evidence, all []record, covered map[gocql.UUID]time.Time, readsBack bool) (wrong []string) {
	id := all[0].ID.UUID()
	saved, ok := covered[id]
	_, dead := e.deadLetters[id]        // a relay may have replayed it as it ended
	sent := make([]time.Time, len(all)) // a relay may have ended before the broker executed its request
	for i := range all {
		sent[i] = w.kafka.receivedAt(&all[i])
	}
	first, alone := sent[0], 0 // duplicates that no end explains
	for i, r := range all[1:] {
		again := fmt.Sprintf("event %s was published at %s and again at %s", id, w.after(all[0].at), w.after(r.at))
		if sent[i+1].Before(first) {
			first = sent[i+1]
		}
		if w.kafka.wroteLate(&all[i], &r) {
			w.seen.late++
			if !w.endedBetween(sent[i], sent[i+1]) {
				alone++
			}
			continue
		}
		if readsBack {
			wrong = append(wrong, again)
			continue
		}
		if slices.ContainsFunc(all[:i+1], func(o record) bool { return o.producer == r.producer }) {
			wrong = append(wrong, again+" by one relay")
		}
		// The broker may execute the relay's requests later.
		ends := 0
		for _, p := range w.relays[:len(w.relays)-1] {
			recent := p.config.Tail != relay.TailOff && p.ended.Sub(all[i].at) <= p.config.ConfidenceWindow+time.Minute+30*time.Second
			if p.ended.Before(r.at) && (!ok || dead || recent || !saved.Before(p.ended) || e.wasScanned(id, p.ended, r.at)) {
				ends++
			}
		}
		// A relay that fell behind the log's TTL, or whose partition was stalled, has
		// started again in its process.
		for _, at := range w.restarts.at {
			if at.After(first) && at.Before(r.at) {
				ends++
			}
		}
		if ends+alone < i+1 {
			wrong = append(wrong, again+", not explained by the ends of relays")
		}
	}
	return wrong
}

// wroteLate reports whether one of two records of an event was written by a request that its
// client had given up, and the other one while that request was held back or after it, in a
// simulation with errors that prove nothing.
func (k *kafka) wroteLate(first, second *record) bool {
	return k.refuses && slices.ContainsFunc(k.delayed, func(d delayedRequest) bool {
		return d.executed.Sub(d.received) >= givenUpAfter &&
			(d.wrote(second) && !first.at.Before(d.received) || d.wrote(first) && !second.at.Before(d.executed))
	})
}

// receivedAt returns when the broker received the request that wrote a record: the first of those
// that it delayed and that may have written it.
func (k *kafka) receivedAt(r *record) time.Time {
	at := r.at
	for _, d := range k.delayed {
		if d.wrote(r) && d.received.Before(at) {
			at = d.received
		}
	}
	return at
}

// endedBetween reports whether a relay ended, or started again in its process, between two times in
// any order.
func (w *world) endedBetween(a, b time.Time) bool {
	between := func(at time.Time) bool { return at.After(a) && at.Before(b) || at.After(b) && at.Before(a) }
	return slices.ContainsFunc(w.restarts.at, between) ||
		slices.ContainsFunc(w.relays[:len(w.relays)-1], func(p *process) bool { return between(p.ended) })
}

// withoutDeleted returns the records of an event without those that were deleted before the next one.
func withoutDeleted(all []record) (out []record) {
	for i, r := range all {
		if i == len(all)-1 || r.gone.IsZero() || r.gone.After(all[i+1].at) {
			out = append(out, r)
		}
	}
	return out
}

// checkRepeated: the events that the next relay repeats after a crash are bounded. Of the
// events that the broker stored before the last save interval, at most the read-ahead
// limit were without a checkpoint at the crash. This holds while checkpoints can be
// saved, and without a tail reader, which is hours ahead of a sweep reader that catches
// up.
func (w *world) checkRepeated(e *evidence) {
	w.t.Helper()
	first, covered := e.firstSeen(), e.lastCovered()
	inLog := make(map[gocql.UUID]bool)
	for _, h := range e.streams {
		for _, row := range h.rows {
			inLog[row.event] = !e.scanCovers(time.Now(), row.time.Time(), first[row.event])
		}
	}
	for _, p := range w.relays {
		if !p.crashed || p.unsaved || p.config.Tail != relay.TailOff {
			continue
		}
		bound := len(e.streams) * p.config.MaxStreamBacklog
		long := p.ended.Add(-relay.Defaults().CheckpointInterval - time.Second)
		open := 0
		for id, at := range first {
			saved, ok := covered[id]
			if !inLog[id] || !carriedBy(p.config.Shard.Name(relay.Defaults().Name))(e.outbox[id].AggregateID.UUID()) {
				continue // ignore expired rows and rows read by a scan
			}
			if at.Before(long) && (!ok || !saved.Before(p.ended)) {
				open++
			}
		}
		if open > bound {
			w.t.Errorf("%s crashed at %s with %d published events without a checkpoint, want at most %d", p.name, w.after(p.ended), open, bound)
		}
	}
}

// firstSeen returns the time when the broker first stored each event.
func (e *evidence) firstSeen() map[gocql.UUID]time.Time {
	first := make(map[gocql.UUID]time.Time, len(e.records))
	for _, r := range e.records {
		if _, ok := first[r.ID.UUID()]; !ok {
			first[r.ID.UUID()] = r.at
		}
	}
	return first
}

// lastCovered returns the time when a checkpoint of the event's relay first passed all of
// its log rows. It omits events with a row that no checkpoint passed.
func (e *evidence) lastCovered() map[gocql.UUID]time.Time {
	covered := make(map[gocql.UUID]time.Time)
	never := make(map[gocql.UUID]bool)
	for _, h := range e.streams {
		passed := make([]time.Time, len(h.rows))
		for name, saves := range h.byRelay() {
			carries, i := carriedBy(name), 0
			for _, s := range saves {
				if s.late {
					continue
				}
				for ; i < len(h.rows) && scyllacdc.CompareTimeUUID(h.rows[i].time, s.position) <= 0; i++ {
					if carries(h.rows[i].aggregate) && (passed[i].IsZero() || s.at.Before(passed[i])) {
						passed[i] = s.at
					}
				}
			}
		}
		for i, row := range h.rows {
			if passed[i].IsZero() {
				never[row.event] = true
			} else if passed[i].After(covered[row.event]) {
				covered[row.event] = passed[i]
			}
		}
	}
	for id := range never {
		delete(covered, id)
	}
	return covered
}
