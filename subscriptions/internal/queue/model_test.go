package queue

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestMain(m *testing.M) {
	seeds.Rapid()
	if err := flag.Set("rapid.nofailfile", "true"); err != nil { // mutants would leave them
		panic(err)
	}
	m.Run()
}

var errFault = errors.New("no luck")

// fact is the model's knowledge of a record.
type fact struct {
	record    Record
	filtered  bool
	delivered int  // most deliveries that an owner can know
	acked     bool // an acknowledgement was requested of a valid lease
	confirmed bool // and confirmed
	purged    bool
	dead      bool // a dead letter is written
	rejected  bool
	lease     uint64 // current lease, 0 for none
	until     time.Time
	ended     map[uint64]Action // what ended the former leases of this owner
}

func (f *fact) over() bool { return f.filtered || f.confirmed || f.purged || f.dead }

// model drives a queue as an owner does, with a log, a committed position, rows and
// faults, and checks every promise.
type model struct {
	t       *rapid.T
	cfg     Config
	q       *Queue
	now     time.Time
	log     []int64 // offsets
	facts   map[int64]*fact
	read    int // records of the log that the owner has read
	offset  int64
	meta    string
	rows    map[int64]Row
	nextOff int64
}

type modelCall struct {
	m      *model
	offset int64
	action Action
	q      *Queue
}

func (c *modelCall) Done(_ int, o Outcome) { c.m.outcome(c.offset, c.action, o) }

func (m *model) outcome(offset int64, a Action, o Outcome) {
	f := m.facts[offset]
	switch {
	case a == Ack && o == OK:
		if !f.acked {
			m.t.Fatalf("%d: a confirmation without an acknowledgement", offset)
		}
		f.confirmed = true
	case a == Nack && o == OK:
		if _, ok := m.rows[offset]; !ok && !f.over() && !f.acked {
			m.t.Fatalf("%d: a failed delivery is confirmed and not stored", offset)
		}
	case a == Reject && o == OK && !f.dead:
		m.t.Fatalf("%d: a rejection is confirmed without a dead letter", offset)
	}
}

// start begins with the stored state, as the next owner does.
func (m *model) start() {
	if m.q != nil {
		m.q.Close()
	}
	settled, of, err := position.Decode(m.offset, m.meta)
	if err != nil && m.meta != "" {
		m.t.Fatal(err)
	}
	var blocked []Blocked
	for o, f := range m.facts {
		if _, stored := m.rows[o]; stored || o >= m.offset && !settled.Has(o) {
			f.purged = false                                             // that was not stored
			f.dead = f.dead && (m.cfg.Strict || m.rows[o].DeadLettering) // a message that was never delivered is given up again
		} else if f.acked {
			f.confirmed = true // by a commit without an answer
		}
		if f.dead {
			blocked = append(blocked, Blocked{f.record.Key, o, f.record.Timestamp})
		}
		f.lease, f.ended = 0, nil
		f.acked = f.acked && f.confirmed
	}
	rows := slices.SortedFunc(maps.Values(m.rows), func(a, b Row) int { return int(a.Offset - b.Offset) })
	for i := range rows {
		rows[i].RecordAt, rows[i].Record = rows[i].Record.Timestamp, nil
	}
	m.q = New(m.cfg, Start{Offset: m.offset, Settled: settled, Origin: of, Rows: rows, Blocked: blocked})
	m.read, _ = slices.BinarySearch(m.log, m.offset)
}

func (m *model) produce(n int, keys *rapid.Generator[string]) {
	for range n {
		f := &fact{filtered: rapid.IntRange(0, 9).Draw(m.t, "filtered") == 0}
		f.record = Record{Key: keys.Draw(m.t, "key"), Record: &kgo.Record{Offset: m.nextOff, Timestamp: m.now, Value: []byte(strconv.FormatInt(m.nextOff, 10))}}
		if rapid.IntRange(0, 20).Draw(m.t, "own") == 0 {
			f.record.MaxReceive = rapid.IntRange(1, 4).Draw(m.t, "max receive")
		}
		if rapid.IntRange(0, 30).Draw(m.t, "undecidable") == 0 {
			f.record.Undecidable = errFault
		}
		m.facts[m.nextOff] = f
		m.log = append(m.log, m.nextOff)
		m.nextOff++
		if rapid.IntRange(0, 8).Draw(m.t, "gap") == 0 {
			m.nextOff += rapid.Int64Range(1, 7000).Draw(m.t, "size")
		}
	}
}

func (m *model) readSome(n int) {
	for ; n > 0 && m.read < len(m.log) && !m.q.Full(false); n-- {
		f := m.facts[m.log[m.read]]
		m.read++
		if f.filtered {
			m.q.Skip(f.record.Offset, 0)
		} else {
			m.q.Add(f.record)
		}
	}
}

func (m *model) lease(n int, visibility time.Duration) {
	m.q.Expire(m.now)
	m.expire()
	run := rapid.SampledFrom([]int{1, 1, 2, 100}).Draw(m.t, "run")
	leased := make(map[int64]bool) // by this request
	byKey := make(map[string]int)
	lease := func() []Delivery { return m.q.Lease(nil, n, run, m.now, m.now.Add(visibility), "") }
	if rapid.IntRange(0, 3).Draw(m.t, "probe") == 0 {
		lease = func() []Delivery { return m.q.Probe(nil, m.now, m.now.Add(visibility), "") }
	}
	for _, d := range lease() {
		f := m.facts[d.Offset]
		f.delivered++
		switch {
		case f.over() || f.acked:
			m.t.Fatalf("%d is delivered after its end: %+v", d.Offset, f)
		case f.lease != 0:
			m.t.Fatalf("%d has two leases", d.Offset)
		case d.Attempt > f.delivered || d.Attempt < 1 || d.Attempt > d.MaxReceive:
			m.t.Fatalf("%d is delivered the %d. time as attempt %d of %d", d.Offset, f.delivered, d.Attempt, d.MaxReceive)
		case string(d.Record.Value) != strconv.FormatInt(d.Offset, 10):
			m.t.Fatalf("%d has the record %s", d.Offset, d.Record.Value)
		}
		f.lease, f.until = d.Lease, m.now.Add(visibility)
		if !m.cfg.Ordered || f.record.Key == "" {
			continue
		}
		leased[d.Offset] = true
		if byKey[f.record.Key]++; byKey[f.record.Key] > run {
			m.t.Fatalf("key %s: %d messages are leased, want at most %d", f.record.Key, byKey[f.record.Key], run)
		}
		for _, o := range m.log {
			switch other := m.facts[o]; {
			case other == f || other.record.Key != f.record.Key || o < d.Offset && leased[o]:
			case other.lease != 0:
				m.t.Fatalf("key %s: %d is leased while %d is", f.record.Key, d.Offset, o)
			case o < d.Offset && !other.over():
				m.t.Fatalf("key %s: %d is delivered before the end of %d: %+v, %+v", f.record.Key, d.Offset, o, other, m.q.messages[o])
			case o < d.Offset && other.dead && m.cfg.Strict:
				m.t.Fatalf("key %s: %d passes the dead letter %d", f.record.Key, d.Offset, o)
			}
		}
	}
}

// expire ends the leases of the model.
func (m *model) expire() {
	for _, f := range m.facts {
		if f.lease != 0 && !f.until.After(m.now) {
			f.end(ended)
		}
	}
}

func (f *fact) end(a Action) {
	if f.ended == nil {
		f.ended = make(map[uint64]Action)
	}
	f.ended[f.lease] = a
	f.lease = 0
}

// run returns the leased messages of a run from an offset on.
func (m *model) run(f *fact, from int64) (out []int64) {
	for _, o := range m.log {
		if other := m.facts[o]; o >= from && other.lease != 0 && (other == f || m.cfg.Ordered && f.record.Key != "" && other.record.Key == f.record.Key) {
			out = append(out, o)
		}
	}
	return out
}

// settle applies an action to a valid, a former or an invented lease.
func (m *model) settle(a Action) {
	if len(m.log) == 0 {
		return
	}
	offset := rapid.SampledFrom(m.log).Draw(m.t, "offset")
	var live []int64
	for _, o := range m.log {
		if m.facts[o].lease != 0 {
			live = append(live, o)
		}
	}
	if len(live) > 0 && rapid.IntRange(0, 3).Draw(m.t, "live") > 0 {
		offset = rapid.SampledFrom(live).Draw(m.t, "leased")
	}
	f := m.facts[offset]
	lease := f.lease
	if len(f.ended) > 0 && (lease == 0 || rapid.IntRange(0, 3).Draw(m.t, "former") == 0) {
		lease = rapid.SampledFrom(slices.Sorted(maps.Keys(f.ended))).Draw(m.t, "lease")
	}
	m.expire()
	valid := f.lease != 0 && lease == f.lease
	if a == ended { // extend
		until := m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(m.t, "until"))
		if ok := !m.q.Extend(offset, lease, m.now, until).IsZero(); ok != valid {
			m.t.Fatalf("%d: extended is %v, the lease is valid: %v", offset, ok, valid)
		} else if ok {
			for _, o := range m.run(f, 0) {
				m.facts[o].until = until
			}
			f.until = until
		}
		return
	}
	if valid && a == Ack && m.run(f, 0)[0] != offset {
		if o := m.q.Settle(offset, lease, a, m.now, 0, "", Waiter{}); o != OutOfOrder {
			m.t.Fatalf("%d: the outcome is %d while an earlier message of its run is leased", offset, o)
		}
		return
	}
	if valid {
		if a != Ack {
			for _, o := range m.run(f, offset+1) {
				m.facts[o].end(ended)
			}
		}
		f.end(a)
		f.acked = f.acked || a == Ack
		f.rejected = f.rejected || a == Reject
	}
	o := m.q.Settle(offset, lease, a, m.now, 0, "failed", Waiter{Call: &modelCall{m, offset, a, m.q}})
	if valid && o == Expired || !valid && o != Expired && (lease == 0 || f.ended[lease] != a) {
		m.t.Fatalf("%d: the lease is valid: %v, and the outcome is %d", offset, valid, o)
	}
	if o != Pending {
		m.outcome(offset, a, o)
	}
}

// commit stores the position, which must not cover a record that is not settled.
func (m *model) commit(fault string) {
	p := m.q.Position()
	settled, _, err := position.Decode(p.Offset, p.Metadata)
	if err != nil || len(p.Metadata) > position.MaxMetadata {
		m.t.Fatalf("metadata of %d bytes: %v", len(p.Metadata), err)
	}
	if p.Offset < m.offset {
		m.t.Fatalf("the position moves from %d to %d", m.offset, p.Offset)
	}
	for _, o := range m.log {
		f := m.facts[o]
		_, stored := m.rows[o]
		if (o < p.Offset || settled.Has(o)) && !f.over() && !f.acked && !stored {
			m.t.Fatalf("the position %d contains %d, which is neither settled nor stored", p.Offset, o)
		}
	}
	if fault != "lost" {
		m.offset, m.meta = p.Offset, p.Metadata
	}
	if fault == "" {
		m.q.ConfirmPosition(p)
	} else {
		m.q.Uncertain(p)
	}
}

// work executes the requests of the queue, with a fault for each part.
func (m *model) work(faults *rapid.Generator[string]) {
	w := m.q.Work(rapid.IntRange(1, 5).Draw(m.t, "most"))
	result := func() (applied bool, err error) {
		switch faults.Draw(m.t, "fault") {
		case "lost":
			return false, errFault
		case "unknown":
			return true, errFault
		}
		return true, nil
	}
	for _, r := range w.Save {
		applied, err := result()
		if applied {
			m.rows[r.Offset] = r
		}
		m.q.ConfirmSave(r.Offset, err)
	}
	for _, o := range w.Remove {
		applied, err := result()
		if applied {
			delete(m.rows, o)
		}
		m.q.ConfirmRemoval(o, err)
	}
	for _, o := range w.Load {
		_, err := result()
		if _, ok := m.rows[o]; !ok {
			m.t.Fatalf("%d: there is no row to load", o)
		}
		m.q.ConfirmLoad(o, m.facts[o].record, err)
	}
	for _, d := range w.DeadLetters {
		f := m.facts[d.Offset]
		limit := m.cfg.MaxReceive
		if f.record.MaxReceive > 0 {
			limit = f.record.MaxReceive
		}
		if !f.rejected && f.record.Undecidable == nil && d.Attempts < limit {
			m.t.Fatalf("%d is a dead letter after %d deliveries, want %d", d.Offset, d.Attempts, limit)
		}
		applied, err := result()
		f.dead = f.dead || applied
		m.q.DeadLettered(d.Offset, err)
	}
}

func newModel(t *rapid.T, cfg Config) *model {
	m := &model{t: t, cfg: cfg, now: time.UnixMilli(1e12), facts: make(map[int64]*fact), rows: make(map[int64]Row), nextOff: 100, offset: 100}
	m.cfg.Backoff = func(n int) time.Duration { return time.Duration(n) * time.Second }
	m.start()
	return m
}

// finish lets everything succeed until there is nothing left.
func (m *model) finish() {
	none := rapid.Just("")
	for range 20_000 {
		m.readSome(1000)
		m.lease(1000, time.Minute)
		for _, o := range m.log {
			if f := m.facts[o]; f.lease != 0 {
				f.acked = true
				lease := f.lease
				f.lease = 0
				if out := m.q.Settle(o, lease, Ack, m.now, 0, "", Waiter{Call: &modelCall{m, o, Ack, m.q}}); out == OK {
					m.outcome(o, Ack, out)
				}
			}
		}
		m.commit("")
		for m.q.HasWork() {
			m.work(none)
		}
		m.q.Unblock(m.now, m.q.Full(false))
		m.now = m.now.Add(time.Second)
		left := false
		for _, o := range m.log {
			f := m.facts[o]
			left = left || !f.over() && !(m.cfg.Strict && m.behindDead(o))
		}
		if _, urgent := m.q.Dirty(); !left && !urgent && !m.q.HasWork() && m.read == len(m.log) {
			break
		}
	}
	for _, o := range m.log {
		if f := m.facts[o]; !f.over() && !(m.cfg.Strict && m.behindDead(o)) {
			m.t.Fatalf("%d is lost: %+v; %+v; message %+v", o, f, m.q.Counts(), m.q.messages[o])
		}
	}
	if !m.cfg.Strict && (len(m.rows) > 0 || len(m.q.messages) > 0 || len(m.q.lanes) > 0 || m.q.bytes != 0 || m.q.loaded != 0 || m.q.stored != 0) {
		m.t.Fatalf("%d rows, %d messages, %d keys, %d bytes, %d loaded, %d stored are left", len(m.rows), len(m.q.messages), len(m.q.lanes), m.q.bytes, m.q.loaded, m.q.stored)
	}
}

// behindDead reports whether an earlier message of the key is a dead letter.
func (m *model) behindDead(offset int64) bool {
	key := m.facts[offset].record.Key
	return key != "" && slices.ContainsFunc(m.log, func(o int64) bool { return o < offset && m.facts[o].record.Key == key && m.facts[o].dead })
}

func actions(m *model) map[string]func(*rapid.T) {
	keys := rapid.SampledFrom([]string{"a", "b", "c", "d", ""})
	faults := rapid.SampledFrom([]string{"", "", "", "lost", "unknown"})
	with := func(f func()) func(*rapid.T) {
		return func(t *rapid.T) { m.t = t; f() }
	}
	return map[string]func(*rapid.T){
		"produce": with(func() { m.produce(rapid.IntRange(1, 20).Draw(m.t, "n"), keys) }),
		"read":    with(func() { m.readSome(rapid.IntRange(1, 30).Draw(m.t, "n")) }),
		"lease": with(func() {
			m.lease(rapid.IntRange(1, 10).Draw(m.t, "n"), time.Duration(rapid.IntRange(1, 30).Draw(m.t, "s"))*time.Second)
		}),
		"ack":     with(func() { m.settle(Ack) }),
		"ack too": with(func() { m.settle(Ack) }),
		"nack":    with(func() { m.settle(Nack) }),
		"release": with(func() { m.settle(Release) }),
		"reject":  with(func() { m.settle(Reject) }),
		"extend":  with(func() { m.settle(ended) }),
		"commit":  with(func() { m.commit(faults.Draw(m.t, "fault")) }),
		"work":    with(func() { m.work(faults) }),
		"time": with(func() {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(m.t, "s")) * time.Second)
			if rapid.Bool().Draw(m.t, "the timer is late") {
				return
			}
			m.q.Expire(m.now)
			m.expire()
			m.q.Unblock(m.now, m.q.Full(false))
		}),
		"unblock": with(func() { m.q.Unblock(m.now, m.q.Full(false)) }),
		"crash":   with(func() { m.start() }),
		"purge": with(func() {
			if rapid.IntRange(0, 5).Draw(m.t, "really") > 0 {
				return
			}
			for _, f := range m.facts {
				if msg := m.q.messages[f.record.Offset]; msg != nil && (msg.phase == Waiting || msg.phase == Deferred) && msg.written.Before(m.now) {
					f.purged = true
				}
			}
			m.q.Purge(m.now, m.now, 0, false)
		}),
	}
}

func TestQueue_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"key": {Ordered: true, MaxReceive: 3}, "strict": {Ordered: true, Strict: true, MaxReceive: 2}, "none": {MaxReceive: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m := newModel(t, cfg)
				t.Repeat(actions(m))
				m.t = t
				m.finish()
			})
		})
	}
}
