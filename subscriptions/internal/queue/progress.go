package queue

import (
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxPast is the number of ended messages that a queue remembers, 32 bytes each.
const maxPast = 2000

// past are the last messages that ended, in a ring.
type past struct {
	list []ending
	next int // the oldest, once the ring is full
	// before is a time at which all messages that it does not contain had ended.
	before time.Time
}

type ending struct {
	offset, at int64 // in milliseconds
	attempts   int32
	purged     bool
}

// add remembers the end of a message that was acknowledged or purged. Dead letters are
// remembered by the database.
func (p *past) add(m *message) {
	if m.since.IsZero() || m.phase != Settled {
		return
	}
	e := ending{m.offset, m.since.UnixMilli(), int32(m.attempts), m.purged}
	if len(p.list) < maxPast {
		p.list = append(p.list, e)
		return
	}
	if at := time.UnixMilli(p.list[p.next].at); at.After(p.before) {
		p.before = at
	}
	p.list[p.next] = e
	p.next = (p.next + 1) % maxPast
}

// find returns the last end of an offset.
func (p *past) find(offset int64) (e ending, ok bool) {
	for i := range p.list {
		if o := p.list[(p.next+len(p.list)-1-i)%len(p.list)]; o.offset == offset {
			return o, true
		}
	}
	return e, false
}

// Kind is what a queue knows of an offset.
type Kind uint8

// The kinds.
const (
	// InPhase: there is a message, in Progress.Phase.
	InPhase Kind = iota
	// Unread: the record is not read yet.
	Unread
	// Purged: it was purged, or will be when it is read.
	Purged
	// Acknowledged: it was acknowledged.
	Acknowledged
	// Over: it is not delivered again. It ended before Progress.At, or is none of the
	// messages of the subscription, or is a dead letter.
	Over
)

// Progress is the state of an offset.
type Progress struct {
	Kind     Kind
	Phase    Phase
	Attempts int
	// At is the end of the lease, the time of the next delivery, of the acknowledgement or
	// of the purge, or the time before which the message ended.
	At time.Time
	// Error is the last failure, DeadLetter the dead letter that is replayed.
	Error      string
	DeadLetter gocql.UUID
}

// Progress returns the state of an offset. It costs a search of the last endings.
func (q *Queue) Progress(offset int64) Progress {
	if m := q.messages[offset]; m != nil {
		p := Progress{Phase: m.phase, Attempts: m.attempts, DeadLetter: m.deadLetter}
		p.Error, _ = CutDetails(m.reason)
		switch {
		case m.deadLettering && m.phase == Waiting:
			p.Phase = Dead
		case m.phase == Settled && m.purged:
			p.Kind, p.At = Purged, m.since
		case m.phase == Leased:
			p.At = m.until
		case m.phase == Deferred:
			p.At = m.next
		}
		return p
	}
	if _, ok := q.behind[offset]; ok {
		return Progress{Phase: Waiting}
	}
	if e, ok := q.past.find(offset); ok {
		p := Progress{Kind: Acknowledged, At: time.UnixMilli(e.at).UTC(), Attempts: int(e.attempts)}
		if e.purged {
			p.Kind = Purged
		}
		return p
	}
	switch {
	case offset < q.offset() || q.settled.Has(offset):
		return Progress{Kind: Over, At: q.past.before}
	case offset < q.skip:
		return Progress{Kind: Purged}
	}
	return Progress{Kind: Unread}
}

// Lease is a leased message.
type Lease struct {
	Record       *kgo.Record // nil if it is not in memory
	Key          string
	Offset       int64
	Lease        uint64
	Attempt      int
	MaxReceive   int
	Consumer     string
	Since, Until time.Time
}

// Leases returns the leased messages, in any order. It examines all messages.
func (q *Queue) Leases() (out []Lease) {
	for _, m := range q.messages {
		if m.phase == Leased && !q.closed {
			out = append(out, Lease{m.record, m.key, m.offset, m.lease, m.attempts, q.maxReceive(m), m.consumer, m.since, m.until})
		}
	}
	return out
}
