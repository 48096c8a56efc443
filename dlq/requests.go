package dlq

import (
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// Request notifies the relay of an operator's change of a dead letter.
type Request struct {
	// Table is the outbox table, "keyspace.table".
	Table string
	// ID orders requests by time; it is the request's key.
	ID          gocql.UUID
	EventID     gocql.UUID
	AggregateID string
	// Action is the operator's action.
	Action Action
	// Actor is the operator.
	Actor string
	// Entry is the dead letter after the change; its Status may be Resolved.
	Entry ChainEntry

	version int64
}

const (
	// maxRequests limits the requests of one call.
	maxRequests = 1000
	// requestOverlap is how far the clocks of operators may differ.
	requestOverlap = 10 * time.Minute
	// requestGrace is how old a request is, by another clock than its operator's, when
	// the change that it announces was never made. That takes a minute at most.
	requestGrace = requestOverlap + time.Minute
	// requestAgain is the age at which a request is written again after its change was made:
	// the relay may have removed it. It leaves the rest of the grace to different clocks.
	requestAgain = time.Minute
	// requestSweep is the interval at which all requests are read, also older ones.
	requestSweep = 5 * time.Minute
)

// requestMarks contain, by table, the end of the removed requests, so that polls do not
// read their tombstones again.
type requestMarks struct {
	mu struct {
		sync.Mutex
		by map[string]*requestMark
	}
}

type requestMark struct{ done, swept time.Time }

func (m *requestMarks) from(table string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.by == nil {
		m.mu.by = make(map[string]*requestMark)
	}
	mark := m.mu.by[table]
	if mark == nil {
		mark = &requestMark{done: time.Unix(0, 0)}
		m.mu.by[table] = mark
	}
	if now.Sub(mark.swept) >= requestSweep || mark.done.Before(time.Unix(0, 0).Add(requestOverlap)) {
		mark.swept = now
		return time.Unix(0, 0)
	}
	return mark.done.Add(-requestOverlap)
}

func (m *requestMarks) markFinished(table string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark := m.mu.by[table]; mark != nil && at.After(mark.done) {
		mark.done = at
	}
}
