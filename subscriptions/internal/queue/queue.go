package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

const (
	// remembered is the number of leases whose result a queue knows.
	remembered = 10_000
	// readAhead is the number of offsets after the window that are read.
	readAhead = 1000
	// MaxStored is the number of stored messages at which reading stops.
	MaxStored = 2_000_000
	// maxLoaded bounds the stored messages that are in memory to be leased.
	maxLoaded = 256
	// maxPrefetched bounds the ones among them that wait for an earlier one of their key,
	// prefetchAtOnce the ones that are being read, whose size is not known, and prefetchBytes
	// the memory of records up to which they are read: others can be leased now.
	maxPrefetched  = maxLoaded * 3 / 4
	prefetchAtOnce = 32
	prefetchBytes  = 4 << 20
	// storeAtOnce is the number of messages that one call of Unblock stores.
	storeAtOnce = 500
	// blockedFor is the time after which messages of a full window are stored.
	blockedFor = time.Second
	// storeInterval is the time between two calls of Unblock that store messages: 5,000
	// messages per second and partition at most.
	storeInterval = 100 * time.Millisecond
)

// Config is the part of a subscription that a queue needs. It may change: SetConfig.
type Config struct {
	// Ordered delivers the messages of a key one at a time, Strict keeps a key blocked
	// after a dead letter.
	Ordered, Strict bool
	MaxReceive      int
	// MaxExtension bounds a delivery with its extensions; at most MaxDelivery, which is the
	// default.
	MaxExtension time.Duration
	// Backoff returns the delay after the given number of failed deliveries.
	Backoff func(attempts int) time.Duration
}

// Start is the state with which a queue begins.
type Start struct {
	// At is a time after the position was read. The leases of HandOver continue from it on.
	At time.Time
	// Offset is the committed offset, Settled contains the settled ones behind it, and
	// Origin is that of the position.
	Offset  int64
	Settled position.Set
	Origin  position.Origin
	Rows    []Row
	// Blocked are the open dead letters of the subscription that this partition must know,
	// used with Strict.
	Blocked []Blocked
	// HandOver are the leases of the former owner. They belong to Origin.
	HandOver HandOver
	// Held lets nothing be delivered before Begin.
	Held bool
	// Keys are the keys of the subscription; nil for a queue that shares none.
	Keys *Keys
	// Turn is called when the queue has received a key for which it waited, from the call of
	// another queue: it must not block, and lets Queue.Turn be called. Required with Keys.
	Turn func(key string)
}

// Blocked is an open dead letter. It blocks its key, and the message of its offset and time is
// settled; -1 for one of another partition.
type Blocked struct {
	Key    string
	Offset int64
	At     time.Time
}

// Queue is the state of a partition.
type Queue struct {
	cfg      Config
	messages map[int64]*message // all that are not ended
	lanes    map[string]*lane
	behind   map[int64]behind // by offset
	keys     *Keys
	turn     func(key string)
	window   []*message // not settled in the position, sorted by offset
	ready    heap       // active, waiting and in memory
	timers   heap       // leased and deferred
	settled  position.Set
	origin   position.Origin
	next     int64      // offset of the next record
	skip     int64      // records before it are settled when they are read
	unread   []*message // stored ones at or after next: earlier ones of their keys may be unread
	leader   int32      // leader epoch of the last settled record

	changes     uint64     // of the position
	committed   uint64     // change that is confirmed
	unconfirmed []*message // settled ones, by mark
	beyond      []*message // settled ones after the window, by offset
	leases      uint64
	results     []Action // of the last leases, by lease % remembered

	save, remove, load, dead []*message
	phases                   [Settled + 1]int // number of messages in each
	stored, loaded, bytes    int
	reading                  int                 // records that Work has requested
	run                      int                 // most messages of a key that the last request wants
	written                  map[int64]time.Time // messages of dead letters that New received, by offset
	uncertain                uint64              // change that a commit with unknown outcome contains
	handed                   []*message          // inherited ones that are not read yet, by offset
	held, closed             bool
	past                     past
}

// New returns the queue of a partition. Rows decide over the position: their offsets are
// settled.
func New(cfg Config, s Start) *Queue {
	q := &Queue{
		cfg: cfg, messages: make(map[int64]*message), lanes: make(map[string]*lane), behind: make(map[int64]behind), settled: s.Settled, origin: s.Origin, next: s.Offset, leader: -1,
		ready: heap{kind: byOffset}, timers: heap{kind: byTime}, results: make([]Action, remembered),
		past: past{before: s.At}, keys: s.Keys, turn: s.Turn, held: true,
	}
	if q.keys == nil {
		q.keys, q.turn = NewKeys(), func(string) {}
	}
	if cfg.Strict {
		q.written = make(map[int64]time.Time, len(s.Blocked))
		for _, b := range s.Blocked {
			q.Block(b.Key)
			if b.Offset >= 0 {
				q.written[b.Offset] = b.At
			}
		}
	}
	q.settled.Forget(s.Offset)
	for _, r := range s.Rows {
		q.restore(r)
	}
	q.inherit(s.HandOver, s.Offset, s.At)
	if !s.Held {
		q.Begin()
	}
	return q
}

// Begin lets messages be delivered. With Start.Held the caller calls it when all queues that
// may have leases of the same keys are made: until then a key has at most the lease of the
// former owner.
func (q *Queue) Begin() {
	q.held = false
	for _, l := range q.lanes {
		q.advance(l, false)
	}
}

// restore adds a row of the database.
func (q *Queue) restore(r Row) *message {
	m := &message{
		offset: r.Offset, key: r.Key, attempts: r.Attempts, first: r.FirstAt, next: r.NextAt, reason: r.Error, deadLetter: r.DeadLetter, edited: r.Edited, written: r.RecordAt,
		phase: Deferred, row: true, bit: true, deadLettering: r.DeadLettering, rejected: r.Rejected,
	}
	if r.Behind || r.DeadLettering {
		m.phase = Waiting
	}
	q.keep(m)
	q.stored++
	if m.offset >= q.next {
		q.settled.Add(m.offset)
		q.changes++
	}
	if q.enter(m); m.lane != nil && m.offset < q.next {
		q.forget(m)
	}
	return m
}

// behind is a stored message that was never delivered and waits for its turn: most of the
// messages of a key that is blocked for long. It takes a tenth of the memory of a message.
type behind struct {
	*lane
	written int64 // in milliseconds
}

// forget keeps no more than the offset of a message that only the database has, if it waits
// and was never delivered.
func (q *Queue) forget(m *message) {
	if m.phase != Waiting || m.active || m.attempts > 0 || m.deadLetter != (gocql.UUID{}) || m.deadLettering || m.rejected || m.reason != "" {
		return
	}
	l := m.lane
	i, ok := slices.BinarySearchFunc(l.rest, m.offset, compareOffset)
	if !ok {
		return
	}
	q.drop(m)
	l.rest = without(l.rest, i)
	at, _ := slices.BinarySearch(l.stored, m.offset)
	l.stored = slices.Insert(l.stored, at, m.offset)
	q.behind[m.offset] = behind{l, m.written.UnixMilli()}
	delete(q.messages, m.offset)
}

// recall makes a message of the first one of a lane that only the database has.
func (q *Queue) recall(offset int64) *message {
	b := q.behind[offset]
	m := &message{offset: offset, key: b.key, written: time.UnixMilli(b.written), row: true, bit: true, lane: b.lane}
	delete(q.behind, offset)
	i, _ := slices.BinarySearch(b.stored, offset)
	if i == 0 {
		b.stored = b.stored[1:]
	} else {
		b.stored = slices.Delete(b.stored, i, i+1)
	}
	q.messages[offset] = m // q.phases has it
	b.insert(m)
	return m
}

// SetConfig replaces the configuration. A change of Ordered needs a new queue.
func (q *Queue) SetConfig(cfg Config) { q.cfg = cfg }

// Record is a record for Add.
type Record struct {
	*kgo.Record
	// Key is the key of its order, empty for none.
	Key string
	// MaxReceive replaces that of the configuration unless 0.
	MaxReceive int
	// Undecidable is the error of the filter; the message becomes a dead letter.
	Undecidable error
}

// Add adds the next record. Records that are settled or known are ignored.
func (q *Queue) Add(r Record) {
	if m := q.takeInherited(r.Offset); m != nil {
		q.attach(m, r)
		return
	}
	if !q.reach(r.Offset, r.LeaderEpoch) || q.skips(r.Offset) {
		return
	}
	m := &message{
		offset: r.Offset, key: r.Key, leader: r.LeaderEpoch,
	}
	q.content(m, r)
	q.keep(m)
	q.window = append(q.window, m)
	q.enter(m)
	if m.lane != nil {
		q.advance(m.lane, false)
	}
}

// Replaces reports whether a record that is not read yet has the offset of another message that is
// stored or leased: the topic was restored from a copy that ends before the message.
func (q *Queue) Replaces(r *kgo.Record) bool {
	m := q.messages[r.Offset]
	return m != nil && r.Offset >= q.next && !sameTime(m.written, r.Timestamp)
}

// isWritten reports whether the dead letter of a message of a time was written before New.
func (q *Queue) isWritten(offset int64, at time.Time) bool {
	of, ok := q.written[offset]
	return ok && sameTime(of, at)
}

// sameTime compares the times of records, which have milliseconds.
func sameTime(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() }

// content puts the record into its message.
func (q *Queue) content(m *message, r Record) {
	m.record, m.size, m.written, m.maxReceive = r.Record, recordSize(r.Record), r.Timestamp, r.MaxReceive
	if r.Undecidable != nil {
		m.reason, m.rejected = r.Undecidable.Error(), true
	}
	q.bytes += m.size
}

// keep adds a message in its first phase.
func (q *Queue) keep(m *message) {
	q.messages[m.offset] = m
	q.phases[m.phase]++
}

func (q *Queue) become(m *message, p Phase) {
	q.phases[m.phase]--
	m.phase = p
	q.phases[p]++
}

// maxReceive returns the number of deliveries of a message.
func (q *Queue) maxReceive(m *message) int { return cmp.Or(m.maxReceive, q.cfg.MaxReceive) }

// Skip settles the next record without a message: the subscription does not select it.
func (q *Queue) Skip(offset int64, leaderEpoch int32) {
	if m := q.takeInherited(offset); m != nil {
		q.vanish(m)
	}
	if q.reach(offset, leaderEpoch) && len(q.window) > 0 {
		q.settled.Add(offset)
	}
}

// reach moves the end of the read records, and reports whether the record is new.
func (q *Queue) reach(offset int64, leader int32) bool {
	if q.closed || offset < q.next {
		return false
	}
	q.next = offset + 1
	q.changes++
	for len(q.unread) > 0 && q.unread[0].offset < q.next {
		l := q.lanes[q.unread[0].key]
		if q.unread = q.unread[1:]; l != nil {
			q.advance(l, false)
		}
	}
	if len(q.window) == 0 {
		q.leader = leader
		q.settled.Forget(offset)
	}
	return !q.settled.Has(offset)
}

// skips reports whether a purge has settled a new record before it was read.
func (q *Queue) skips(offset int64) bool {
	if offset >= q.skip {
		return false
	}
	if len(q.window) > 0 {
		q.settled.Add(offset)
	}
	return true
}

// recordSize returns the memory of a record, approximately.
func recordSize(r *kgo.Record) int {
	n := 500 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return n
}

// enter adds a message to its lane or, without order, makes it active.
func (q *Queue) enter(m *message) {
	if q.isWritten(m.offset, m.written) && m.deadLetter == (gocql.UUID{}) {
		q.settle(m) // the former owner stopped after it wrote the dead letter
		return
	}
	if !q.cfg.Ordered || m.key == "" {
		q.activate(m)
		return
	}
	m.lane = q.findLane(m.key)
	m.lane.insert(m)
	if m.offset >= q.next {
		i, _ := slices.BinarySearchFunc(q.unread, m.offset, compareOffset)
		q.unread = slices.Insert(q.unread, i, m)
	}
}

func (q *Queue) findLane(key string) *lane {
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key}
		q.lanes[key] = l
	}
	return l
}

// advance makes the next message of a lane active, or removes an empty lane. With yield the
// messages of the key in other partitions come first if they are older.
func (q *Queue) advance(l *lane, yield bool) {
	if len(l.run)+l.alone > 0 || q.held {
		return
	}
	blocked := q.keys.isBlocked(l.key)
	if !blocked && len(l.stored) > 0 && (len(l.rest) == 0 || l.stored[0] < l.rest[0].offset) {
		q.recall(l.stored[0])
	}
	i := l.next(blocked)
	if i >= 0 && l.rest[i].offset >= q.next {
		i = -1 // reach continues
	}
	if i < 0 {
		q.keys.leave(l.key, q)
		if !l.waits() {
			delete(q.lanes, l.key)
		}
		return
	}
	if q.keys.take(l.key, q, l.rest[i].written, yield) {
		l.first = 0
		q.activate(l.take(i))
		q.prefetch(l)
	}
}

// prefetch requests the records of the stored messages that follow in a lane, as far as a consumer
// wants them in one run, so that they can be leased with the first one.
func (q *Queue) prefetch(l *lane) {
	if q.run < 2 || q.keys.isBlocked(l.key) {
		return
	}
	for i := 0; i < q.run-1; i++ {
		if len(l.stored) > 0 && (i == len(l.rest) || l.stored[0] < l.rest[i].offset) {
			if !q.mayPrefetch() {
				return
			}
			q.recall(l.stored[0])
		}
		if i == len(l.rest) || l.rest[i].offset >= q.next {
			return
		}
		switch m := l.rest[i]; {
		case m.phase != Waiting || m.rejected || m.deadLettering || m.unread:
			return
		case m.record != nil || m.loading || m.fetching:
		case !q.mayPrefetch():
			return
		default:
			m.fetching = true
			q.load = append(q.load, m)
		}
	}
}

// mayPrefetch reports whether one more record fits into memory.
func (q *Queue) mayPrefetch() bool {
	return q.loaded+len(q.load) < maxPrefetched && q.reading+len(q.load) < prefetchAtOnce && q.bytes < prefetchBytes
}

// Turn continues a lane that has received its key.
func (q *Queue) Turn(key string) {
	if l := q.lanes[key]; l != nil && !q.closed {
		q.advance(l, false)
	} else {
		q.keys.leave(key, q)
	}
}

// activate lets a message be delivered when it is due.
func (q *Queue) activate(m *message) {
	m.active = true
	switch {
	case m.phase == Deferred:
		if !m.want && !m.saving {
			q.timer(m, m.next)
		}
	case m.phase == Dead:
		q.giveUp(m)
	case m.phase != Waiting:
	case m.record == nil:
		if !m.loading && !m.unread && !m.fetching {
			m.fetching = true
			q.load = append(q.load, m)
		}
	case m.rejected || m.deadLettering:
		q.deadLetter(m)
	default:
		q.ready.push(m)
	}
}

func (q *Queue) timer(m *message, at time.Time) {
	q.timers.remove(m)
	m.due = at
	q.timers.push(m)
}

// offset returns the first offset that is not settled in the position.
func (q *Queue) offset() int64 {
	if len(q.window) > 0 {
		return q.window[0].offset
	}
	return q.next
}

// settleOffset settles the offset of a message in the position.
func (q *Queue) settleOffset(m *message) {
	if m.bit {
		return
	}
	m.bit = true
	q.changes++
	q.settled.Add(m.offset)
	n := 0
	for ; n < len(q.window) && q.window[n].bit; n++ {
		q.leader = q.window[n].leader
		q.window[n] = nil
	}
	q.window = q.window[n:]
	if n > 0 {
		q.settled.Forget(q.offset())
	}
}

// Close ends all leases, and reports the outcome of pending actions as far as it is known. A
// closed queue ignores all calls.
func (q *Queue) Close() { q.close(Expired, Unknown) }

// close is Close with the outcomes of acknowledgements that no commit contains, and of the other
// pending actions.
func (q *Queue) close(uncommitted, other Outcome) {
	if q.closed {
		return
	}
	q.closed = true
	for _, m := range q.messages {
		if m.phase == Settled && m.mark > q.uncertain && !m.confirmed && !m.rejected {
			m.done(uncommitted)
		} else {
			m.done(other)
		}
	}
	for key := range q.lanes {
		q.keys.leave(key, q)
	}
}

// Block adds an open dead letter of a key, with Strict.
func (q *Queue) Block(key string) {
	if q.cfg.Strict && q.cfg.Ordered && key != "" {
		q.keys.Block(key)
	}
}
