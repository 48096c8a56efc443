package queue

import (
	"time"

	"github.com/gocql/gocql"
)

// Replay adds the message of a dead letter that an operator replays; false if a message
// of that offset is not ended. It is stored before it is delivered.
func (q *Queue) Replay(r Row, now time.Time) bool {
	if _, stored := q.behind[r.Offset]; stored || q.closed || q.messages[r.Offset] != nil || r.DeadLetter == (gocql.UUID{}) || r.Record == nil {
		return false
	}
	m := &message{offset: r.Offset, key: r.Key, first: now, next: now, deadLetter: r.DeadLetter, phase: Deferred, bit: true}
	q.content(m, Record{Record: r.Record})
	q.keep(m)
	if m.offset >= q.next {
		q.settled.Add(m.offset)
	}
	q.requestSave(m)
	q.enter(m)
	if m.lane != nil {
		q.advance(m.lane, false)
	}
	return true
}

// Replayed returns the state of the replay of a dead letter: free if there is no message at
// the offset, stored if it is the replay and has a row. Otherwise it is the replay without
// a row, one that is ending, or another message.
func (q *Queue) Replayed(offset int64, deadLetter gocql.UUID) (free, stored bool) {
	m := q.messages[offset]
	if m == nil {
		_, stored := q.behind[offset]
		return !q.closed && !stored, false
	}
	return false, m.deadLetter == deadLetter && m.row && !m.saving && m.phase != Settled && m.phase != Dead && !m.deadLettering && !q.closed
}

// DeadLetterOf returns the dead letter of which the message at an offset is a replay, zero
// without one, and whether the message was purged.
func (q *Queue) DeadLetterOf(offset int64) (deadLetter gocql.UUID, purged bool) {
	if m := q.messages[offset]; m != nil {
		return m.deadLetter, m.purged
	}
	return gocql.UUID{}, false
}
