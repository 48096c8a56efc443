package publish

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// memory is the dedup index: the ids of published events, and the next number of
// each aggregate. The publisher's lock guards it.
//
// The tail reader and later the sweep reader read every row of the log. An id is
// fresh until the sweep has read its row, and shown for some time after that,
// because a retry or a batchlog replay may have written the row twice. Ids are kept
// in plain maps without pointers: about 40 bytes each, nothing for the garbage
// collector to scan, and evicted one map at a time.
type memory struct {
	maxFresh, maxShown, maxAggregates int

	// fresh contains the events whose rows the sweep has not read, by time of
	// publication, the newest last.
	fresh  []freshEvents
	freshN int
	isNear bool // freshN is near maxFresh, see near
	// shown contains the events whose rows the sweep read last, older those before them.
	shown, older shownEvents
	// horizon is the newest write time, in microseconds, of all evicted ids: the id
	// of a published event with a later write time is in the index.
	horizon int64

	// lines contains the aggregates published last, olderLines those before them.
	lines, olderLines map[gocql.UUID]line
	// gaps contains the skipped numbers by aggregate. busy reports whether events of
	// an aggregate are in progress; its lane then has its line.
	gaps map[gocql.UUID]*gaps
	busy func(gocql.UUID) bool
}

// inTopic reports whether an event that counts as published is known to be in its topic.
type inTopic bool

// line is the known part of an aggregate's sequence: events first to next-1 were
// accepted, except gaps.
type line struct{ first, next int64 }

type freshEvents struct {
	ids    map[gocql.UUID]inTopic
	since  time.Time
	newest int64 // write time
}

type shownEvents struct {
	ids    map[gocql.UUID]inTopic
	newest int64
}

func newMemory(maxEvents, maxAggregates int) *memory {
	return &memory{
		maxFresh: maxEvents, maxShown: max(maxEvents/4, 1), maxAggregates: max(maxAggregates/2, 1),
		shown: shownEvents{ids: make(map[gocql.UUID]inTopic)},
		lines: make(map[gocql.UUID]line),
		gaps:  make(map[gocql.UUID]*gaps),
		busy:  func(gocql.UUID) bool { return false },
	}
}

// has reports whether the event is in the dedup index.
func (m *memory) has(id gocql.UUID) bool {
	for i := range slices.Backward(m.fresh) {
		if _, ok := m.fresh[i].ids[id]; ok {
			return true
		}
	}
	if _, ok := m.shown.ids[id]; ok {
		return true
	}
	_, ok := m.older.ids[id]
	return ok
}

// addUnsent adds an event that counts as published although it may be in no topic:
// its dead letter is settled.
func (m *memory) addUnsent(id gocql.UUID, written int64) { m.addAs(id, written, false) }

// addAs adds an event that is published, or counts as published, before the sweep
// has read its row.
func (m *memory) addAs(id gocql.UUID, written int64, how inTopic) {
	if len(m.fresh) == 0 {
		m.fresh = append(m.fresh, freshEvents{ids: make(map[gocql.UUID]inTopic), since: time.Now()})
	}
	b := &m.fresh[len(m.fresh)-1]
	b.ids[id] = how
	b.newest = max(b.newest, written)
	m.freshN++
}

// shownAs adds an event that is published, or counts as published, after the sweep
// has read its row.
func (m *memory) shownAs(id gocql.UUID, written int64, how inTopic) {
	if len(m.shown.ids) >= m.maxShown {
		m.horizon = max(m.horizon, m.older.newest)
		m.older = m.shown
		m.shown = shownEvents{ids: make(map[gocql.UUID]inTopic)}
	}
	m.shown.ids[id] = how
	m.shown.newest = max(m.shown.newest, written)
}

// show records that the sweep has read the row of a published event.
func (m *memory) show(id gocql.UUID, written int64) {
	for i := range m.fresh {
		if how, ok := m.fresh[i].ids[id]; ok {
			delete(m.fresh[i].ids, id)
			m.freshN--
			m.shownAs(id, written, how)
			return
		}
	}
}

// full reports whether the index has no room for events that the sweep has not read.
func (m *memory) full() bool { return m.freshN >= m.maxFresh }

// find reports whether the event counts as published, and whether it is known to be
// in its topic.
func (m *memory) find(id gocql.UUID) (out bool, in inTopic) {
	for i := range m.fresh {
		if in, ok := m.fresh[i].ids[id]; ok {
			return true, in
		}
	}
	if in, ok := m.shown.ids[id]; ok {
		return true, in
	}
	in, out = m.older.ids[id]
	return out, in
}

// forget removes an event that its topic has lost.
func (m *memory) forget(id gocql.UUID) {
	for i := range m.fresh {
		if _, ok := m.fresh[i].ids[id]; ok {
			delete(m.fresh[i].ids, id)
			m.freshN--
		}
	}
	delete(m.shown.ids, id)
	delete(m.older.ids, id)
}

// forgetUnsent removes an event that counts as published and is not known to be in
// its topic.
func (m *memory) forgetUnsent(id gocql.UUID) {
	for i := range m.fresh {
		if how, ok := m.fresh[i].ids[id]; ok && !bool(how) {
			delete(m.fresh[i].ids, id)
			m.freshN--
		}
	}
	for _, ids := range []map[gocql.UUID]inTopic{m.shown.ids, m.older.ids} {
		if how, ok := ids[id]; ok && !bool(how) {
			delete(ids, id)
		}
	}
}

// pass records that the sweep has read the log up to the given write time, and adds
// a part to fresh when the last one is older than every. Parts below that write time
// become shown: the sweep will not read their rows, which are late or expired.
func (m *memory) pass(upTo int64, now time.Time, every time.Duration) {
	m.fresh = slices.DeleteFunc(m.fresh, func(b freshEvents) bool {
		old := now.Sub(b.since) >= every
		if len(b.ids) > 0 && !(old && b.newest < upTo) || len(b.ids) == 0 && !old {
			return false
		}
		for id, how := range b.ids {
			m.shownAs(id, b.newest, how)
		}
		m.freshN -= len(b.ids)
		return true
	})
	if n := len(m.fresh); n > 0 && now.Sub(m.fresh[n-1].since) >= every {
		m.fresh = append(m.fresh, freshEvents{ids: make(map[gocql.UUID]inTopic), since: now})
	}
}

// line returns the line of an aggregate that has no events in progress.
func (m *memory) line(aggregate gocql.UUID) (line, bool) {
	if l, ok := m.lines[aggregate]; ok {
		return l, true
	}
	l, ok := m.olderLines[aggregate]
	return l, ok
}

// keep stores the line of an aggregate and evicts the least recently published ones.
func (m *memory) keep(aggregate gocql.UUID, l line) {
	if len(m.lines) >= m.maxAggregates {
		for a := range m.gaps {
			if _, ok := m.lines[a]; !ok && !m.busy(a) {
				delete(m.gaps, a)
			}
		}
		m.olderLines, m.lines = m.lines, make(map[gocql.UUID]line)
	}
	m.lines[aggregate] = l
}

// advance returns the line after event seq of the aggregate is accepted.
func (m *memory) advance(aggregate gocql.UUID, l line, seq int64) line {
	switch {
	case l.next == 0:
		return line{first: seq, next: seq + 1}
	case seq >= l.next:
		if seq > l.next {
			m.skip(aggregate, l.next, seq)
		}
		l.next = seq + 1
	case m.isGap(aggregate, seq):
		g := m.gaps[aggregate]
		if g.found(seq); len(g.numbers) == 0 {
			delete(m.gaps, aggregate)
		}
	}
	return l
}

// size returns the number of events and aggregates in the index.
func (m *memory) size() (fresh, shown, aggregates int) {
	return m.freshN, len(m.shown.ids) + len(m.older.ids), len(m.lines) + len(m.olderLines)
}

// Indexed reports whether the dedup index contains an event that is not in progress,
// and whether that event is known to be in its topic.
func (p *Publisher) Indexed(id gocql.UUID) (indexed, inTopic bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items[id] != nil {
		return false, false
	}
	out, in := p.memory.find(id)
	return out, bool(in)
}

// Forget removes an event from the dedup index.
func (p *Publisher) Forget(id gocql.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.forget(id)
}
