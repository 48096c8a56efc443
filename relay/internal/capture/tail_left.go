package capture

import (
	"maps"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// maxTailLeft is the number of aggregates above which tailLeft removes the aggregates that
// need not be left any more.
const maxTailLeft = 1000

// tailLeft contains the aggregates of a table without numbers of which the tail reader left a row
// to the sweep reader because it cannot identify the event. No number shows that it is missing, so
// the later rows of the aggregate are left too, until the sweep reader has handed on all of them.
// It is safe for concurrent use.
type tailLeft struct {
	streams *checkpoint.Streams

	mu         sync.Mutex
	aggregates map[gocql.UUID]*leftRows
}

// leftRows are the rows of an aggregate that are left: from the first one, and the last one so
// far, which is in a stream of the generation that begins at start. Write times are in
// microseconds.
type leftRows struct {
	first, last int64
	start       time.Time
	stream      []byte
}

// add leaves a row, and the rows of its aggregate that were written later.
func (l *tailLeft) add(aggregate gocql.UUID, start time.Time, stream []byte, written int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.aggregates) >= maxTailLeft {
		maps.DeleteFunc(l.aggregates, func(_ gocql.UUID, r *leftRows) bool { return l.handedOn(r) })
	}
	if r := l.aggregates[aggregate]; r != nil && !l.handedOn(r) {
		r.first = min(r.first, written)
		r.extend(start, stream, written)
		return
	}
	if l.aggregates == nil {
		l.aggregates = make(map[gocql.UUID]*leftRows)
	}
	l.aggregates[aggregate] = &leftRows{first: written, last: written, start: start, stream: stream}
}

// follows reports whether a row must be left because an earlier one of its aggregate is. It is
// then left like that one.
func (l *tailLeft) follows(aggregate gocql.UUID, start time.Time, stream []byte, written int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.aggregates[aggregate]
	switch {
	case r == nil:
		return false
	case l.handedOn(r):
		delete(l.aggregates, aggregate)
		return false
	case written < r.first:
		return false
	}
	r.extend(start, stream, written)
	return true
}

// extend notes a later row.
func (r *leftRows) extend(start time.Time, stream []byte, written int64) {
	if written > r.last {
		r.last, r.start, r.stream = written, start, stream
	}
}

// handedOn reports whether the sweep reader has handed on all of the rows.
func (l *tailLeft) handedOn(r *leftRows) bool {
	if upTo, ok := l.streams.Handed(r.start, r.stream); ok {
		return r.last <= upTo
	}
	swept, _, _ := l.streams.HandedAll()
	return swept.After(r.start)
}
