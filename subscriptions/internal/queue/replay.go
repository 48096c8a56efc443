package queue

import (
	"time"

	"github.com/gocql/gocql"
)

// Replay adds the message of a dead letter that an operator replays; false if a message
// of that offset is not ended. It is stored before it is delivered. Its offset is negative, so
// that it is no offset of a record: the record of the dead letter may belong to another
// generation. It comes before all records of its key.
func (q *Queue) Replay(r Row, now time.Time) bool {
	if _, stored := q.behind[r.Offset]; stored || q.closed || r.Offset >= 0 || q.messages[r.Offset] != nil || r.DeadLetter == (gocql.UUID{}) || r.Record == nil {
		return false
	}
	m := &message{offset: r.Offset, key: r.Key, first: now, next: now, deadLetter: r.DeadLetter, edited: r.Edited, phase: Deferred, bit: true}
	q.content(m, Record{Record: r.Record})
	q.keep(m)
	q.requestSave(m)
	q.enter(m)
	if m.lane != nil {
		q.advance(m.lane, false)
	}
	return true
}

// ReplayState is the state of the replay of a dead letter.
type ReplayState uint8

// The states.
const (
	// NoReplay: there is no message at the offset.
	NoReplay ReplayState = iota
	// OtherReplay: there is a replay of another dead letter, or of other content, or one that
	// ends.
	OtherReplay
	// AcceptedReplay: the replay has no row yet.
	AcceptedReplay
	// StoredReplay: the replay has a row.
	StoredReplay
)

// FindReplayState returns the state of the replay of a dead letter with an edit.
func (q *Queue) FindReplayState(offset int64, deadLetter, edited gocql.UUID) ReplayState {
	m := q.messages[offset]
	switch {
	case q.closed:
		return OtherReplay
	case m == nil:
		if _, stored := q.behind[offset]; stored {
			return OtherReplay
		}
		return NoReplay
	case m.deadLetter != deadLetter || m.edited != edited || m.phase == Settled || m.phase == Dead || m.deadLettering:
		return OtherReplay
	case !m.row || m.saving:
		return AcceptedReplay
	}
	return StoredReplay
}

// Cancel removes the replay of a dead letter, which stays as it is, unless it is leased or
// ends.
func (q *Queue) Cancel(offset int64, deadLetter gocql.UUID) {
	m := q.messages[offset]
	if q.closed || m == nil || m.deadLetter != deadLetter || m.phase != Waiting && m.phase != Deferred || m.deadLettering {
		return
	}
	m.deadLetter = gocql.UUID{}
	q.settle(m)
}

// FindReplay returns the dead letter of which the message at an offset is a replay, zero
// without one, its edit, and whether the message was purged.
func (q *Queue) FindReplay(offset int64) (deadLetter, edited gocql.UUID, purged bool) {
	if m := q.messages[offset]; m != nil {
		return m.deadLetter, m.edited, m.purged
	}
	return gocql.UUID{}, gocql.UUID{}, false
}
