package queue

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// settle settles a message; it ends after the confirmation.
func (q *Queue) settle(m *message) {
	q.become(m, Settled)
	q.ready.remove(m)
	q.timers.remove(m)
	q.drop(m)
	if m.bit && m.mark != 0 && m.mark <= q.committed {
		q.confirm(m)
		return
	}
	q.settleOffset(m)
	if m.offset >= q.offset()+position.Window { // a dead letter of the filter, or purged
		i, _ := slices.BinarySearchFunc(q.beyond, m.offset, compareOffset)
		q.beyond = slices.Insert(q.beyond, i, m)
		return
	}
	q.unconfirm(m)
	q.admit()
}

// unconfirm lets the next commit confirm a settled message.
func (q *Queue) unconfirm(m *message) {
	q.changes++
	m.mark = q.changes
	q.unconfirmed = append(q.unconfirmed, m)
}

// admit lets the next commit confirm the messages that the window has reached.
func (q *Queue) admit() {
	for len(q.beyond) > 0 && q.beyond[0].offset < q.offset()+position.Window {
		q.unconfirm(q.beyond[0])
		q.beyond = q.beyond[1:]
	}
}

// drop frees the record of a message.
func (q *Queue) drop(m *message) {
	q.bytes -= m.size
	m.size, m.record = 0, nil
	if m.loading && m.row {
		m.loading = false
		q.loaded--
	}
}

// confirm continues the end of a message whose offset is settled in a stored position.
func (q *Queue) confirm(m *message) {
	m.confirmed = true
	switch {
	case m.saving: // Saved continues
	case m.row:
		q.remove = append(q.remove, m)
	default:
		q.end(m)
	}
}

// end forgets a message, reports the result, and makes the next one of its key active.
func (q *Queue) end(m *message) {
	delete(q.messages, m.offset)
	q.past.add(m)
	q.phases[m.phase]--
	if m.row {
		q.stored--
	}
	m.done(OK)
	if l := m.lane; l != nil {
		l.remove(m)
		q.advance(l, true)
	}
}

// Position is a position to commit.
type Position struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	mark        uint64
}

// Dirty reports whether the position has changed since the last confirmed commit, and
// whether messages wait for the confirmation.
func (q *Queue) Dirty() (changed, urgent bool) {
	return !q.closed && q.changes > q.committed, !q.closed && len(q.unconfirmed) > 0
}

// Position returns the position to commit now.
func (q *Queue) Position() Position {
	at := q.offset()
	return Position{Offset: at, LeaderEpoch: q.leader, Metadata: q.settled.Encode(at, q.origin), mark: q.changes}
}

// ConfirmPosition confirms the settlements that a position contains.
func (q *Queue) ConfirmPosition(p Position) {
	if q.closed {
		return
	}
	q.committed = max(q.committed, p.mark)
	n := 0
	for ; n < len(q.unconfirmed) && q.unconfirmed[n].mark <= p.mark; n++ {
		m := q.unconfirmed[n]
		q.unconfirmed[n] = nil
		q.confirm(m)
	}
	q.unconfirmed = q.unconfirmed[n:]
}

// Uncertain reports a commit with unknown outcome; the position has to be committed
// again.
func (q *Queue) Uncertain(p Position) { q.uncertain = max(q.uncertain, p.mark) }

func (q *Queue) requestSave(m *message) {
	if !m.want && !m.saving && !m.unread { // attach continues
		q.save = append(q.save, m)
	}
	m.want = true
}

// Work contains the changes to make in the database. Each part is reported by the method
// that it names; a failed part is reported, too, and is in a later Work again.
type Work struct {
	Save        []Row        // Saved
	Remove      []int64      // Removed
	Load        []int64      // Loaded
	DeadLetters []DeadLetter // DeadLettered
}

// Empty reports whether there is nothing to do.
func (w *Work) Empty() bool { return len(w.Save)+len(w.Remove)+len(w.Load)+len(w.DeadLetters) == 0 }

// HasWork reports whether Work would return something.
func (q *Queue) HasWork() bool {
	return !q.closed && (len(q.save) > 0 || len(q.remove) > 0 || len(q.dead) > 0 || len(q.load) > 0 && q.loaded < maxLoaded)
}

// Work returns up to most messages of each part. The parts of the result belong to the
// caller until they are reported.
func (q *Queue) Work(most int) (w Work) {
	if q.closed {
		return w
	}
	take := func(list *[]*message, limit int, f func(*message)) {
		n := min(len(*list), limit)
		for _, m := range (*list)[:n] {
			f(m)
		}
		*list = (*list)[n:]
		if len(*list) == 0 {
			*list = nil
		}
	}
	take(&q.save, most, func(m *message) {
		m.want = false
		if m.phase == Settled || m.record == nil && !m.row {
			return // acknowledged before it was stored
		}
		m.saving = true
		w.Save = append(w.Save, Row{
			Offset: m.offset, Key: m.key, Behind: m.phase == Waiting && m.attempts == 0, DeadLettering: m.phase == Dead, Rejected: m.phase == Dead && m.rejected, Attempts: m.attempts, NextAt: m.nextAt(), FirstAt: m.firstAt(),
			Error: m.reason, Record: m.record, DeadLetter: m.deadLetter, Edited: m.edited,
		})
	})
	take(&q.remove, most, func(m *message) { w.Remove = append(w.Remove, m.offset) })
	take(&q.load, min(most, maxLoaded-q.loaded), func(m *message) {
		m.fetching = false
		if m.phase == Waiting && m.record == nil && !m.loading {
			m.loading = true
			q.loaded++
			q.reading++
			w.Load = append(w.Load, m.offset)
		}
	})
	take(&q.dead, most, func(m *message) {
		w.DeadLetters = append(w.DeadLetters, DeadLetter{
			Offset: m.offset, Record: m.record, Attempts: m.attempts, FirstAt: m.first, Error: m.reason, Rejected: m.rejected, DeadLetter: m.deadLetter,
		})
	})
	return w
}

// firstAt returns the time of the first delivery; that of the record before it.
func (m *message) firstAt() time.Time {
	if m.phase == Waiting && m.attempts == 0 {
		return m.written
	}
	return m.first
}

// nextAt returns the time at which another owner may deliver the message.
func (m *message) nextAt() time.Time {
	if m.phase == Leased {
		return m.until
	}
	return m.next
}

// ConfirmSave reports the result of writing a row. After an error the row may exist.
func (q *Queue) ConfirmSave(offset int64, err error) {
	m := q.messages[offset]
	if m == nil || !m.saving || q.closed {
		return
	}
	m.saving = false
	if !m.row {
		m.row = true
		q.stored++
	}
	switch {
	case m.phase == Settled:
		if m.confirmed {
			q.remove = append(q.remove, m)
		}
		return
	case err != nil:
		m.want = false // requested or not meanwhile, no list contains it
		q.requestSave(m)
		return
	}
	if !m.bit {
		q.settleOffset(m)
		q.admit()
	}
	if m.mark == 0 {
		m.mark = q.changes
	}
	if m.want {
		q.save = append(q.save, m)
		return
	}
	switch m.phase {
	case Deferred:
		q.drop(m)
		m.done(OK)
		if m.active {
			q.timer(m, m.next)
		}
	case Waiting:
		if !m.active {
			q.drop(m)
			if m.lane != nil {
				q.forget(m)
			}
		}
	case Dead:
		m.deadLettering = true
		q.bury(m)
	default: // a lease still needs the record
	}
}

// ConfirmRemoval reports the result of removing a row.
func (q *Queue) ConfirmRemoval(offset int64, err error) {
	m := q.messages[offset]
	switch {
	case m == nil || m.phase != Settled || q.closed:
	case err != nil:
		q.remove = append(q.remove, m)
	default:
		q.end(m)
	}
}

// ConfirmLoad reports the result of reading the record of a row.
func (q *Queue) ConfirmLoad(offset int64, r Record, err error) {
	q.reading--
	m := q.messages[offset]
	if m == nil || !m.loading || m.record != nil || q.closed {
		return
	}
	if err != nil || m.phase != Waiting {
		m.loading = false
		q.loaded--
		if m.phase == Waiting && !m.fetching {
			m.fetching = true
			q.load = append(q.load, m)
		}
		return
	}
	q.content(m, r)
	if m.active {
		q.activate(m)
	}
	if m.lane != nil {
		q.prefetch(m.lane)
	}
}

// DeadLettered reports the result of writing a dead letter, which settles the message.
func (q *Queue) DeadLettered(offset int64, err error) {
	m := q.messages[offset]
	if m == nil || m.phase != Dead || q.closed {
		return
	}
	if err != nil {
		q.dead = append(q.dead, m)
		return
	}
	q.Block(m.key)
	m.since = time.Time{} // it is neither acknowledged nor purged
	q.settle(m)
}

// Unblock requests to store messages that keep others out of the window, while reading has
// stopped or the window is full, and nothing can be delivered: leased messages, and messages
// that wait for them, after a second. A key that is blocked for long so costs the others no
// more than the time to store its messages. It returns the time of the next call, zero if
// there is no need.
func (q *Queue) Unblock(now time.Time, stopped bool) time.Time {
	full := len(q.window) > 0 && (stopped || q.window[len(q.window)-1].offset >= q.offset()+position.Window)
	if q.closed || !full || q.CanLease() || q.stored >= MaxStored {
		return time.Time{}
	}
	n := 0
	for _, m := range q.window {
		if n == storeAtOnce || m.offset >= q.offset()+position.Window {
			break
		}
		if !m.bit && !m.want && !m.saving && q.blocks(m, now) {
			if m.first.IsZero() && m.phase == Leased {
				m.first = now
			}
			q.requestSave(m)
			n++
		}
	}
	if n == 0 {
		return now.Add(blockedFor)
	}
	return now.Add(storeInterval)
}

// blocks reports whether a message is leased for long, or waits for one that is, for a delayed
// one, or for a dead letter.
func (q *Queue) blocks(m *message, now time.Time) bool {
	front := m
	if m.phase == Waiting && !m.active && m.lane != nil {
		if len(m.lane.run) == 0 {
			return true
		}
		front = m.lane.run[min(m.lane.first, len(m.lane.run)-1)]
	}
	switch front.phase {
	case Leased:
		return now.Sub(front.since) >= blockedFor
	case Deferred, Dead:
		return front != m
	default:
		return false
	}
}

// Full reports whether reading must stop; with hysteresis for a queue that has stopped.
func (q *Queue) Full(stopped bool) bool {
	limit := int64(position.Window + readAhead)
	if stopped {
		limit = position.Window / 2
	}
	return len(q.window) > 0 && q.next-q.offset() > limit || q.stored >= MaxStored
}

// Purge settles the waiting and deferred messages that were written before the given
// time, and messages of records before the offset that are read later. It returns the
// number of messages; with dry it only counts.
func (q *Queue) Purge(now, before time.Time, offset int64, dry bool) (n int64) {
	var gone []*message
	for _, m := range q.messages {
		if (m.phase == Waiting || m.phase == Deferred) && m.written.Before(before) {
			gone = append(gone, m)
		}
	}
	var stored []int64
	for o, b := range q.behind {
		if time.UnixMilli(b.written).Before(before) {
			stored = append(stored, o)
		}
	}
	if q.closed || dry {
		return int64(len(gone) + len(stored))
	}
	q.skip = max(q.skip, offset)
	for _, o := range stored {
		gone = append(gone, q.recall(o))
	}
	slices.SortFunc(gone, func(a, b *message) int { return compareOffset(a, b.offset) })
	for _, m := range gone {
		m.purged, m.since = true, now
		q.settle(m)
	}
	return int64(len(gone))
}

// Counts are the numbers of messages in memory and in the database, and the state of
// reading.
type Counts struct {
	Waiting, Leased, Deferred, Stored int64
	// Bytes is the memory of the records.
	Bytes int
	// Offset is the first offset that is not settled, Next that of the next record.
	Offset, Next int64
	// Origin is that of the position.
	Origin position.Origin
}

// Counts returns the numbers of the queue.
func (q *Queue) Counts() Counts {
	return Counts{
		Waiting: int64(q.phases[Waiting]), Leased: int64(q.phases[Leased]), Deferred: int64(q.phases[Deferred]), Stored: int64(q.stored),
		Bytes: q.bytes, Offset: q.offset(), Next: q.next, Origin: q.origin,
	}
}

// CountUnsettled returns the number of offsets of a range after the read ones that are not settled.
func (q *Queue) CountUnsettled(from, to int64) int64 {
	n := to - from
	for o := from; o < min(to, from+position.Window); o++ {
		if q.settled.Has(o) {
			n--
		}
	}
	return n
}

// Oldest returns the time of the oldest message that is not settled; zero for none. It
// examines all messages.
func (q *Queue) Oldest() (at time.Time) {
	for _, m := range q.messages {
		if m.phase != Settled && (at.IsZero() || m.written.Before(at)) {
			at = m.written
		}
	}
	for _, l := range q.lanes {
		if len(l.stored) > 0 { // the later ones were written later, as far as the clocks go
			if first := time.UnixMilli(q.behind[l.stored[0]].written); at.IsZero() || first.Before(at) {
				at = first
			}
		}
	}
	return at
}
