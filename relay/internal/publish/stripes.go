package publish

import (
	"maps"
	"sync"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// stripe is the state of a part of the aggregates: their lanes with the items in them,
// their lines and claims. Its lock guards it.
type stripe struct {
	sync.Mutex
	lanes   map[gocql.UUID]*lane // aggregates with events in progress
	held    map[gocql.UUID]*Hold
	claims  map[gocql.UUID]chan struct{} // aggregates in which a caller fills a gap
	lines   *dedup.Lines
	sending map[*lane]struct{} // lanes with records outstanding
	refused map[*lane]struct{} // lanes that the breaker refused
	// postponed contains the aggregates with events for a gated partition, and the number of
	// the first one, 0 without numbers (postpone.go).
	postponed map[gocql.UUID]int64
	_         [64]byte // no two locks are in one cache line
}

// stripes contains the aggregates in stripes by aggregate id. Lock and Unlock are for all
// stripes, in their order; a caller that has locked a single one locks no other.
type stripes [dedup.Stripes]stripe

// init prepares empty stripes.
func (s *stripes) init(maxAggregates func() int) {
	for i := range s {
		a := &s[i]
		a.lanes, a.held, a.claims = make(map[gocql.UUID]*lane), make(map[gocql.UUID]*Hold), make(map[gocql.UUID]chan struct{})
		a.sending, a.refused = make(map[*lane]struct{}), make(map[*lane]struct{})
		a.postponed = make(map[gocql.UUID]int64)
		a.lines = dedup.NewLines(maxAggregates, func(aggregate gocql.UUID) bool { return a.lanes[aggregate] != nil })
	}
}

// Lock locks all stripes.
func (s *stripes) Lock() {
	for i := range s {
		s[i].Lock()
	}
}

// Unlock unlocks all stripes.
func (s *stripes) Unlock() {
	for i := range s {
		s[i].Unlock()
	}
}

// of returns the stripe of an aggregate.
func (s *stripes) of(aggregate gocql.UUID) *stripe { return &s[dedup.StripeOf(aggregate)] }

// lock returns the stripe of an aggregate, locked.
func (s *stripes) lock(aggregate gocql.UUID) *stripe {
	own := s.of(aggregate)
	own.Lock()
	return own
}

// takeRefused removes and returns the lanes that the breaker refused. Called with all
// stripes locked.
func (s *stripes) takeRefused() map[*lane]struct{} {
	var out map[*lane]struct{}
	for i := range s {
		if len(s[i].refused) == 0 {
			continue
		}
		if out == nil {
			out = make(map[*lane]struct{})
		}
		maps.Copy(out, s[i].refused)
		clear(s[i].refused)
	}
	return out
}

// line returns the line of an aggregate.
func (s *stripe) line(aggregate gocql.UUID) (dedup.Line, bool) {
	if l, ok := s.lanes[aggregate]; ok {
		return l.line, true
	}
	return s.lines.Line(aggregate)
}

// advance records that event seq of an aggregate needs no reader: it is published, or a dead
// letter. Otherwise the number would count as skipped, and be looked up again.
func (s *stripe) advance(aggregate gocql.UUID, seq int64) {
	if l, ok := s.lanes[aggregate]; ok {
		l.line = s.lines.Advance(aggregate, l.line, seq)
	} else if known, ok := s.lines.Line(aggregate); ok {
		s.lines.Keep(aggregate, s.lines.Advance(aggregate, known, seq))
	}
}

// lane returns the aggregate's lane and creates it if necessary.
func (s *stripe) lane(aggregate gocql.UUID, of *producer.Producer) *lane {
	l, ok := s.lanes[aggregate]
	if !ok {
		known, _ := s.lines.Line(aggregate)
		l = newLane(aggregate, s, known, of)
		s.lanes[aggregate] = l
	}
	return l
}

// rest removes a lane without items, unless it was removed before, and keeps its line.
func (s *stripe) rest(l *lane) {
	if len(l.items) > 0 || l.replay != nil || l.state == laneWriting || s.lanes[l.id] != l {
		return
	}
	s.lines.Keep(l.id, l.line)
	delete(s.lanes, l.id)
}
