package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Phase is the phase of a message.
type Phase uint8

// The phases.
const (
	Waiting Phase = iota
	Leased
	Deferred
	Dead
	Settled
)

// Action is what ended a lease.
type Action uint8

// The actions. ended is that of leases which expired or were superseded.
const (
	ended Action = iota
	Ack
	Nack
	Release
	Reject
	// Postpone ends a delivery that does not count, and delays the next one.
	Postpone
)

// Outcome is the result of an action.
type Outcome uint8

// The outcomes.
const (
	// Expired: the lease has ended, and the action changed nothing.
	Expired Outcome = iota
	// OK: the action is durable.
	OK
	// Unknown: the action was applied, and its durability is unknown.
	Unknown
	// Moved: the queue was handed over before the action was durable; the next owner decides
	// when it is repeated.
	Moved
	// Pending: the waiter receives the outcome later.
	Pending
	// OutOfOrder: an earlier message of the run is not acknowledged; the action changed
	// nothing.
	OutOfOrder
)

// Waiter receives the outcome of an action.
type Waiter struct {
	Call  Call
	Index int
}

// Call is the receiver of outcomes. Done must not block, and must not call the queue.
type Call interface{ Done(index int, o Outcome) }

// message is a record that the subscription selects.
type message struct {
	offset        int64
	key           string
	record        *kgo.Record // nil while only the database has it
	size          int
	written       time.Time // of the record; that of the first failure if it is unknown
	leader        int32     // leader epoch of the record
	maxReceive    int       // replaces that of the configuration unless 0
	rejected      bool      // by a consumer, the filter or the transform
	attempts      int
	first         time.Time // first failure
	next          time.Time // earliest time of the next delivery
	reason        string    // last error
	deadLetter    gocql.UUID
	edited        gocql.UUID // the edit of the dead letter that the record contains
	purged        bool
	deadLettering bool // its row contains that it becomes a dead letter

	phase  Phase
	lane   *lane // nil without order
	active bool
	lease  uint64    // the last one
	since  time.Time // its begin; the time of the acknowledgement or the purge of a settled message
	until  time.Time
	// consumer is a name for operators.
	consumer string

	bit       bool   // settled in the position
	mark      uint64 // change of the position that confirms the settlement
	confirmed bool
	row       bool // there may be a row
	want      bool // the row has to be written
	saving    bool // it is being written
	loading   bool
	fetching  bool   // it is in Queue.load
	unread    bool   // inherited, and its record is not read yet
	alone     bool   // leased in its lane, and not a part of the run
	heap      [2]int // index in each heap, from 1; 0 if it is in none
	due       time.Time

	waiter  Waiter
	waiters []Waiter // further ones
}

// Delivery is a leased message.
type Delivery struct {
	Record     *kgo.Record
	Offset     int64
	Attempt    int
	MaxReceive int
	Lease      uint64
	Until      time.Time
}

// Row is a stored message.
type Row struct {
	Offset int64
	Key    string
	// Behind reports that the message was never delivered and waits for an earlier one.
	Behind bool
	// DeadLettering reports that the message becomes a dead letter, Rejected that a consumer
	// rejected it.
	DeadLettering, Rejected bool
	Attempts                int
	NextAt, FirstAt         time.Time
	Error                   string
	// Record is nil in rows that New receives, which have its time instead.
	Record     *kgo.Record
	RecordAt   time.Time
	DeadLetter gocql.UUID
	// Edited is the edit of the dead letter that Record contains.
	Edited gocql.UUID
}

// DeadLetter is a message whose dead letter has to be written.
type DeadLetter struct {
	Offset   int64
	Record   *kgo.Record
	Attempts int
	FirstAt  time.Time
	Error    string
	// Rejected reports that a consumer, the filter or the transform rejected the message.
	Rejected bool
	// DeadLetter is the existing dead letter if the message is a replay of it.
	DeadLetter gocql.UUID
}

func (m *message) wait(w Waiter) {
	switch {
	case w.Call == nil:
	case m.waiter.Call == nil:
		m.waiter = w
	default:
		m.waiters = append(m.waiters, w)
	}
}

// done reports the outcome to all waiters.
func (m *message) done(o Outcome) {
	if m.waiter.Call != nil {
		m.waiter.Call.Done(m.waiter.Index, o)
		m.waiter = Waiter{}
	}
	for _, w := range m.waiters {
		w.Call.Done(w.Index, o)
	}
	m.waiters = nil
}

// lane contains the messages of a key.
type lane struct {
	key string
	// run are the active messages: one, or consecutive ones that one consumer has. Settled
	// ones, up to first, await their confirmation.
	run   []*message
	first int
	// alone is the number of messages beside the run that were leased while the queue had no
	// order: there is no run until they have ended.
	alone int
	rest  []*message // sorted by offset
	// stored are the offsets of messages that only the database has, sorted.
	stored []int64
}

// insert adds a message that waits for its turn.
func (l *lane) insert(m *message) {
	i, _ := slices.BinarySearchFunc(l.rest, m.offset, compareOffset)
	l.rest = slices.Insert(l.rest, i, m)
}

func compareOffset(m *message, offset int64) int { return cmp.Compare(m.offset, offset) }

// waits reports whether messages wait for their turn.
func (l *lane) waits() bool { return len(l.rest)+len(l.stored) > 0 }

// next returns the index of the next message, -1 if there is none or the key is blocked.
// Replays of a dead letter pass the block that it causes, and so do messages that become dead letters.
func (l *lane) next(blocked bool) int {
	if blocked {
		return slices.IndexFunc(l.rest, func(m *message) bool { return m.deadLetter != gocql.UUID{} || m.deadLettering || m.phase == Dead })
	}
	return min(len(l.rest), 1) - 1
}

// take makes a message active.
func (l *lane) take(i int) *message {
	m := l.rest[i]
	l.rest = without(l.rest, i)
	l.run = append(l.run, m)
	return m
}

// cut moves the messages of the run from i on back.
func (l *lane) cut(i int) {
	back := l.run[i:]
	sorted := len(l.rest) == 0 || back[len(back)-1].offset < l.rest[0].offset
	l.rest = slices.Insert(l.rest, 0, back...)
	if !sorted { // a replay has come meanwhile
		slices.SortFunc(l.rest, func(a, b *message) int { return compareOffset(a, b.offset) })
	}
	clear(back)
	l.run = l.run[:i]
}

// remove removes a message that has ended.
func (l *lane) remove(m *message) {
	if m.alone {
		m.alone = false
		l.alone--
	} else if i := slices.Index(l.run, m); i >= 0 {
		l.run = without(l.run, i)
		if i < l.first {
			l.first--
		}
	} else if i, ok := slices.BinarySearchFunc(l.rest, m.offset, compareOffset); ok {
		l.rest = without(l.rest, i)
	}
}

// without removes an element, cheaply if it is the first one.
func without(list []*message, i int) []*message {
	if i == 0 {
		list[0] = nil
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

// heap is a binary heap of messages that knows the index of each.
type heap struct {
	kind  int // byOffset or byTime
	items []*message
}

const (
	byOffset = iota
	byTime
)

func (h *heap) less(a, b *message) bool {
	if h.kind == byOffset {
		return a.offset < b.offset
	}
	return a.due.Before(b.due)
}

func (h *heap) top() *message {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) push(m *message) {
	if m.heap[h.kind] != 0 {
		return
	}
	h.items = append(h.items, m)
	m.heap[h.kind] = len(h.items)
	h.up(len(h.items) - 1)
}

func (h *heap) remove(m *message) {
	i := m.heap[h.kind] - 1
	if i < 0 {
		return
	}
	last := len(h.items) - 1
	h.swap(i, last)
	h.items[last] = nil
	h.items = h.items[:last]
	m.heap[h.kind] = 0
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h *heap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].heap[h.kind], h.items[j].heap[h.kind] = i+1, j+1
}

func (h *heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if child+1 < len(h.items) && h.less(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.less(h.items[child], h.items[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
