package publish

import (
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// aggregates is the state of the aggregates: their lanes, the events in progress, the
// dedup index and the claims. Publisher.mu guards it.
type aggregates struct {
	cfg    *Config
	lanes  map[gocql.UUID]*lane // aggregates with events in progress
	items  map[gocql.UUID]*item // unacknowledged events, by id
	bytes  int64                // size of items
	held   map[gocql.UUID]*Hold
	claims map[gocql.UUID]chan struct{} // aggregates in which a caller fills a gap
	dedup  *dedup.Index
	// readFrom is the record time from which the start read the topics, in microseconds; 0
	// if it read none.
	readFrom int64
	older    *older.Rows // rows that a backfill has not offered yet, nil without one
}

// init prepares empty aggregates.
func (a *aggregates) init(cfg *Config) {
	a.cfg = cfg
	a.lanes, a.items = make(map[gocql.UUID]*lane), make(map[gocql.UUID]*item)
	a.held, a.claims = make(map[gocql.UUID]*Hold), make(map[gocql.UUID]chan struct{})
	a.dedup = dedup.New(cfg.MaxRememberedEvents, cfg.MaxAggregates, func(aggregate gocql.UUID) bool { return a.lanes[aggregate] != nil })
}

// judge returns the verdict for an event, and its item if it is already in progress.
// isDeadLetter reports whether the event is an open dead letter.
func (a *aggregates) judge(o *Offer, isDeadLetter bool) (v Verdict, it *item) {
	e := &o.Event
	if it = a.items[e.ID]; it != nil || a.dedup.Has(e.ID) || isDeadLetter {
		return Repeated, it
	}
	if e.Sequence == 0 {
		return Taken, nil
	}
	if _, busy := a.claims[e.AggregateID]; busy && !o.Owner {
		return Claimed, nil
	}
	l, known := a.line(e.AggregateID)
	if !o.Owner && a.older.HoldsBack(e, o.Written, l, known, a.dedup.HasGaps(e.AggregateID)) {
		return Unknown, nil
	}
	switch {
	case o.Missing:
		return Taken, nil
	case !known && (o.Anyway || e.Sequence == 1 && !a.rewritten(e, o.Written)):
		return Taken, nil
	case !known:
		return Unknown, nil
	case e.Sequence >= l.Next && !o.Owner && a.dedup.GapsDue(e.AggregateID, e.Sequence):
		return Ahead, nil // the skipped numbers are looked up again first
	case e.Sequence == l.Next, e.Sequence > l.Next && o.Anyway:
		return Taken, nil
	case e.Sequence > l.Next:
		return Ahead, nil
	case a.dedup.IsGap(e.AggregateID, e.Sequence):
		return Taken, nil
	case o.By == ByTail:
		return Left, nil
	case e.Sequence >= l.First && o.Written <= a.dedup.Horizon():
		return Repeated, nil
	case !o.Owner:
		return Left, nil
	}
	return Taken, nil
}

// rewritten reports whether the row of an event of an unknown aggregate may have been
// written again, and the start may not have read the event's record.
func (a *aggregates) rewritten(e *outbox.Event, written int64) bool {
	return cdclog.Rewritten(e, written) || !e.CreatedAt.IsZero() && cdclog.Due(e) < a.readFrom
}

// line returns the line of an aggregate.
func (a *aggregates) line(aggregate gocql.UUID) (dedup.Line, bool) {
	if l, ok := a.lanes[aggregate]; ok {
		return l.line, true
	}
	return a.dedup.Line(aggregate)
}

// lane returns the aggregate's lane and creates it if necessary.
func (a *aggregates) lane(aggregate gocql.UUID, of *producer.Producer) *lane {
	l, ok := a.lanes[aggregate]
	if !ok {
		known, _ := a.dedup.Line(aggregate)
		l = newLane(aggregate, known, of)
		a.lanes[aggregate] = l
	}
	return l
}

// rest removes a lane without items and keeps its line.
func (a *aggregates) rest(l *lane) {
	if len(l.items) > 0 || l.replay != nil || l.writing {
		return
	}
	a.dedup.Keep(l.id, l.line)
	delete(a.lanes, l.id)
}

// published adds the event to the dedup index; in reports whether it is in its topic.
func (a *aggregates) published(it *item, in dedup.InTopic) {
	if it.scanned {
		return // it is not offered again
	}
	if it.shown {
		a.dedup.AddShown(it.event.ID, it.written, in)
	} else {
		a.dedup.Add(it.event.ID, it.written, in)
	}
}

// filling reports whether half of the in-flight budget is used.
func (a *aggregates) filling() bool {
	return 2*len(a.items) >= a.cfg.MaxInFlightRecords || 2*a.bytes >= a.cfg.MaxInFlightBytes
}
