package publish

import (
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// memory is what the relay knows to be out: the ids of acknowledged events, and
// of each aggregate the number that it goes on with. The publisher's lock guards it.
//
// Every row of the log is read twice, by the tail and later by the sweep, so an
// id is kept until the sweep has shown it, as fresh, and for a while after
// that, as shown, for what a retry or a batchlog replay wrote twice. Ids stand
// in plain maps without pointers: some 40 bytes each, nothing for the garbage
// collector to follow, and let go of a map at a time.
type memory struct {
	maxFresh, maxShown, maxAggregates int

	// fresh are the events that the sweep has still to show, by the time at
	// which they went out, the newest last.
	fresh  []freshEvents
	freshN int
	isNear bool // freshN is near maxFresh, see near
	// shown are the events that the sweep showed last, older those before them.
	shown, older shownEvents
	// horizon is the newest write time, in microseconds, of all ids that are
	// forgotten: an event written later that went out is known by its id.
	horizon int64

	// lines are the aggregates that went out last, olderLines those before them.
	lines, olderLines map[gocql.UUID]line
	// gaps are the numbers of aggregates that were passed over. busy reports that events
	// of an aggregate are under way, whose line is with its lane.
	gaps map[gocql.UUID]*gaps
	busy func(gocql.UUID) bool
}

// inTopic says of an event that counts as out that it is known to be in its topic.
type inTopic bool

// line is what is known of an aggregate's sequence: the events first to next-1
// were handed on, but for gaps.
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

// has says whether the event is known to be out.
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

// addUnsent notes an event that counts as out though it may be in no topic: its
// dead letter is settled.
func (m *memory) addUnsent(id gocql.UUID, written int64) { m.addAs(id, written, false) }

// addAs notes an event that is published, or counts as that, before the sweep has shown it.
func (m *memory) addAs(id gocql.UUID, written int64, how inTopic) {
	if len(m.fresh) == 0 {
		m.fresh = append(m.fresh, freshEvents{ids: make(map[gocql.UUID]inTopic), since: time.Now()})
	}
	b := &m.fresh[len(m.fresh)-1]
	b.ids[id] = how
	b.newest = max(b.newest, written)
	m.freshN++
}

// shownAs notes an event that is published, or counts as that, and that the sweep has shown.
func (m *memory) shownAs(id gocql.UUID, written int64, how inTopic) {
	if len(m.shown.ids) >= m.maxShown {
		m.horizon = max(m.horizon, m.older.newest)
		m.older = m.shown
		m.shown = shownEvents{ids: make(map[gocql.UUID]inTopic)}
	}
	m.shown.ids[id] = how
	m.shown.newest = max(m.shown.newest, written)
}

// show notes that the sweep has shown an event that is out.
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

// full says that the sweep is too far behind for more events to go out before it.
func (m *memory) full() bool { return m.freshN >= m.maxFresh }

// find returns whether the event counts as out, and whether it is known to be in its topic.
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

// forget lets go of an event that its topic has lost.
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

// forgetUnsent lets go of an event that counts as out and is not known to be in
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

// pass notes that the sweep has read the log up to the given write time, and
// begins a new part of fresh when the last one is older than every. What the
// sweep has passed without showing it, it will not show: its row in the log is
// late, or expired.
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

// line returns what is known of an aggregate without events under way.
func (m *memory) line(aggregate gocql.UUID) (line, bool) {
	if l, ok := m.lines[aggregate]; ok {
		return l, true
	}
	l, ok := m.olderLines[aggregate]
	return l, ok
}

// keep remembers an aggregate. Those that went out longest ago are forgotten.
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

// advance notes that event seq of the aggregate is handed on.
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

// size is the number of events and aggregates remembered.
func (m *memory) size() (fresh, shown, aggregates int) {
	return m.freshN, len(m.shown.ids) + len(m.older.ids), len(m.lines) + len(m.olderLines)
}

// Indexed returns whether the dedup index has an event that is not under way, and
// whether as one that is in its topic.
func (p *Publisher) Indexed(id gocql.UUID) (indexed, inTopic bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items[id] != nil {
		return false, false
	}
	out, in := p.memory.find(id)
	return out, bool(in)
}

// Forget takes an event out of the dedup index.
func (p *Publisher) Forget(id gocql.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.forget(id)
}
