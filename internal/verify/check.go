package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Kind is the kind of a finding.
type Kind string

// The kinds.
const (
	// Missing: the row exists, and its event is in no topic.
	Missing Kind = "missing"
	// Double: another record of an event that is in a topic already.
	Double Kind = "double"
	// Disorder: the first record of the event is before that of an earlier event of its
	// aggregate, by offset within a partition and otherwise by the times of the records.
	Disorder Kind = "disorder"
	// Gap: the outbox contains the event but not the previous one of its aggregate.
	Gap Kind = "gap"
	// UnreadableRow: a row of the outbox is not an event.
	UnreadableRow Kind = "unreadable"
	// Unknown: a topic contains the event, of this source, and the outbox has no row of it
	// that could have expired. The database lost it after it was published, or the row was
	// deleted or had its own TTL.
	Unknown Kind = "unknown"
	// Conflict: the outbox has another event with its number: two writers gave the number, or it
	// was given again after a restore before an epoch began. A topic contains the event, of the
	// epoch of that one; or the outbox has rows of both.
	Conflict Kind = "conflict"
	// Undone: a topic contains the event, of an earlier epoch than the current one, and the
	// outbox has no row of it and, of its epoch and those before, only rows of its aggregate with
	// smaller numbers: a restore of the database has undone the last events of the aggregate.
	Undone Kind = "undone"
	// Dead, Blocked and Closed: the event is in no topic and has a dead letter that is
	// open, is blocked behind another one, or was closed by an operator.
	Dead    Kind = "dead"
	Blocked Kind = "blocked"
	Closed  Kind = "closed"
)

// Finding is one problem. Topic, Partition and Offset are the place of the record; for a
// missing event only Topic is set.
type Finding struct {
	Kind      Kind      `json:"finding"`
	Event     outbox.ID `json:"event_id,omitzero"`
	Aggregate outbox.ID `json:"aggregate_id"`
	Seq       int64     `json:"sequence"`
	Topic     string    `json:"topic,omitempty"`
	Partition *int32    `json:"partition,omitempty"`
	Offset    *int64    `json:"offset,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

// Window bounds the events that must be in the topics.
type Window struct {
	// Since and Until bound the writes whose events must be in the topics. Zero means no
	// bound.
	Since, Until time.Time
	// FromFirst means that no row has expired yet, so an aggregate whose rows begin after
	// 1 has a gap.
	FromFirst bool
	// Alive is the time since which no row has expired. Older records may lack a row.
	// Zero means that rows do not expire.
	Alive time.Time
	// Epochs are the epochs of the table.
	Epochs epochs.Epochs
}

// Counts are the results of a check.
type Counts struct {
	// Rows are the events written within the window, Published the ones of them that are in
	// a topic.
	Rows      int64 `json:"rows"`
	Published int64 `json:"published"`
	// Young are the events written after the window, which are not checked.
	Young int64 `json:"young"`
	// Pending are events that need not be in a topic yet: written after the window, or
	// blocked by such an event.
	Pending int64 `json:"pending"`
	// Untold are undetermined events: in no topic, and the topic has deleted records of
	// that age.
	Untold int64 `json:"untold"`
	// Dead are events in no topic with an open dead letter, Blocked those whose dead
	// letter is blocked behind one of their aggregate, Closed those whose dead letter an
	// operator discarded or resolved.
	Dead    int64 `json:"dead"`
	Blocked int64 `json:"blocked"`
	Closed  int64 `json:"closed"`

	Missing    int64 `json:"missing"`
	Doubles    int64 `json:"double"`
	Disorder   int64 `json:"disorder"`
	Gaps       int64 `json:"gaps"`
	Unreadable int64 `json:"unreadable"`
	Unknown    int64 `json:"unknown"`
	Conflicts  int64 `json:"conflicts"`
	// Undone are events that a restore of the database has undone. They are no problem: the
	// restore was intended, and consumers distinguish them by their epoch.
	Undone int64 `json:"undone"`
	// Foreign are records that are not events of this outbox: of another source or table, or no
	// events.
	Foreign int64 `json:"foreign"`
}

// Verdict is the result of a check in one word.
type Verdict string

// The verdicts.
const (
	// VerdictOK: every checked event is in its topic or has a dead letter.
	VerdictOK Verdict = "ok"
	// VerdictProblems: an event is missing, duplicated, out of order or unreadable, in a topic
	// without a row, or has the number of another one.
	VerdictProblems Verdict = "problems"
	// VerdictNothingChecked: no event could be checked, because there are none, or all
	// are young, pending, or older than their topics.
	VerdictNothingChecked Verdict = "nothing_checked"
)

// Verdict returns the result. An event without a row is a problem: consumers have a change that
// the database does not. Dead letters are none, because they are not lost.
func (c Counts) Verdict() Verdict {
	switch {
	case c.Missing+c.Doubles+c.Disorder+c.Gaps+c.Unreadable+c.Unknown+c.Conflicts > 0:
		return VerdictProblems
	case c.Published+c.Dead+c.Blocked+c.Closed == 0:
		return VerdictNothingChecked
	}
	return VerdictOK
}

// OK reports whether events were checked and none has a problem.
func (c Counts) OK() bool { return c.Verdict() == VerdictOK }

// checker is one pass over the ledger.
type checker struct {
	l            *Ledger
	since, until int64
	unknownFrom  int64
	fromFirst    bool
	epochs       epochs.Epochs
	report       func(Finding)
	counts       Counts

	// The current aggregate.
	last    *entry // its last row, nil before the first
	waiting bool   // an event of it is pending
	places  []place
}

// place is the last record of an aggregate in one partition.
type place struct {
	partition  uint16
	offset, at int64
	seq        int64
}

// Check compares the records with the rows. It passes every finding to report, which may
// be nil and must not call the ledger.
func (l *Ledger) Check(w Window, report func(Finding)) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if report == nil {
		report = func(Finding) {}
	}
	c := checker{l: l, until: 1<<63 - 1, fromFirst: w.FromFirst, epochs: w.Epochs, report: report}
	if !w.Since.IsZero() {
		c.since = w.Since.UnixMicro()
	}
	if !w.Until.IsZero() {
		c.until = w.Until.UnixMicro()
	}
	c.unknownFrom = c.since
	if !w.Alive.IsZero() {
		c.unknownFrom = max(c.since, w.Alive.UnixMicro())
	}
	for events := l.sortedEvents(); len(events) > 0; {
		n, aggregate := 1, l.events.At(events[0]).aggregate
		for n < len(events) && l.events.At(events[n]).aggregate == aggregate {
			n++
		}
		c.take(events[:n])
		events = events[n:]
	}
	c.doubles()
	for _, u := range slices.SortedFunc(maps.Values(l.unreadable), func(a, b Unreadable) int {
		return cmp.Or(cmp.Compare(a.Aggregate.String(), b.Aggregate.String()), cmp.Compare(a.Seq, b.Seq))
	}) {
		c.unreadable(u)
	}
	c.counts.Foreign += l.foreign
	return c.counts
}

// take checks the events of an aggregate, which are in sequence.
func (c *checker) take(events []uint32) {
	c.last, c.waiting, c.places = nil, false, c.places[:0]
	var last lastRows
	conflicts := make(map[uint32]bool)
	for i, n := range events {
		e := c.l.events.At(n)
		if e.written != 0 {
			conflicts[n] = c.row(e)
			continue
		}
		if c.born(n, e) < c.unknownFrom || e.at >= c.until {
			continue
		}
		if last == nil {
			last = c.lastRows(events)
		}
		conflicts[n] = c.rowless(e, last, c.sameNumber(events, i))
	}
	// The numbers of an epoch begin again.
	slices.SortStableFunc(events, func(a, b uint32) int { return cmp.Compare(c.epoch(a), c.epoch(b)) })
	for _, n := range events {
		if e := c.l.events.At(n); e.partition != none && !conflicts[n] {
			c.order(e)
		}
	}
}

// epoch returns the epoch of the record of an event, 0 without one.
func (c *checker) epoch(n uint32) int64 {
	if e := c.l.events.At(n); e.partition != none {
		return c.l.partitions[e.partition].epoch
	}
	return 0
}

// lastRows are the numbers of the last rows of an aggregate by epoch.
type lastRows map[int64]int64

func (c *checker) lastRows(events []uint32) lastRows {
	last := make(lastRows)
	for _, n := range events {
		if e := c.l.events.At(n); e.written != 0 {
			epoch := c.epochs.Of(e.written)
			last[epoch] = max(last[epoch], e.seq)
		}
	}
	return last
}

// until returns the number of the last row of an epoch and those before, 0 without any.
func (l lastRows) until(epoch int64) (seq int64) {
	for e, n := range l {
		if e <= epoch {
			seq = max(seq, n)
		}
	}
	return seq
}

// sameNumber returns the row that has the number of event i of an aggregate, nil without one.
func (c *checker) sameNumber(events []uint32, i int) *entry {
	seq := c.l.events.At(events[i]).seq
	for _, step := range []int{-1, 1} {
		for k := i + step; k >= 0 && k < len(events); k += step {
			e := c.l.events.At(events[k])
			if e.seq != seq {
				break
			}
			if e.written != 0 {
				return e
			}
		}
	}
	return nil
}

// rowless checks an event that has a record and no row, and reports whether it is a conflict. same
// is a row with its number, if there is one.
func (c *checker) rowless(e *entry, last lastRows, same *entry) (conflict bool) {
	detail := ""
	if same != nil {
		detail = c.hasNumber(same)
	}
	switch epoch := c.l.partitions[e.partition].epoch; {
	case epoch < c.epochs.Current() && e.seq > last.until(epoch):
		c.counts.Undone++
		c.report(c.finding(Undone, e, detail))
	case same != nil && c.epochs.Of(same.written) == epoch:
		c.conflict(e, same)
		return true
	default:
		c.counts.Unknown++
		c.report(c.finding(Unknown, e, detail))
	}
	return false
}

// conflict counts an event whose number another one has.
func (c *checker) conflict(e, same *entry) {
	c.counts.Conflicts++
	c.report(c.finding(Conflict, e, c.hasNumber(same)))
}

func (c *checker) hasNumber(e *entry) string {
	return fmt.Sprintf("event %s has its number", c.l.id(&e.id))
}

// born returns the time of an event with a record: its row cannot be older by more than
// clockSkew, so the row of an event that is born later has not expired.
func (c *checker) born(n uint32, e *entry) int64 {
	if t, ok := c.l.created[n]; ok {
		return min(t, e.at)
	}
	return e.at
}

// fate is the state of an event of the outbox.
type fate int

const (
	published fate = iota
	pending        // not in a topic, and need not be
	untold         // not in a topic, which has deleted records of its age
	dead           // not in a topic, with an open dead letter
	blocked        // not in a topic, with a dead letter that is blocked behind another one
	closed         // not in a topic, with a dead letter that an operator closed
	missing
)

func (c *checker) fate(e *entry) fate {
	if e.partition != none {
		return published
	}
	if deadLetter, ok := c.l.deadLetters[e.id]; ok && deadLetter.mayBelongTo(*c.l.aggregates.At(e.aggregate)) {
		return deadLetterFates[deadLetter.State]
	}
	switch {
	case c.waiting || e.written >= c.until:
		return pending
	case e.written < c.l.topics[e.topic].horizon:
		return untold
	}
	return missing
}

// deadLetterFates maps the states of dead letters to the fates of their events.
var deadLetterFates = map[DeadLetterState]fate{DeadLetterOpen: dead, DeadLetterBlocked: blocked, DeadLetterClosed: closed, DeadLetterLate: pending}

// fateKinds are the findings of fates because of a dead letter.
var fateKinds = map[fate]Kind{dead: Dead, blocked: Blocked, closed: Closed}

// byFate returns the number of the events with a fate.
func (c *Counts) byFate(f fate) *int64 {
	return []*int64{published: &c.Published, pending: &c.Pending, untold: &c.Untold, dead: &c.Dead, blocked: &c.Blocked, closed: &c.Closed, missing: &c.Missing}[f]
}

// unreadable counts a row that is not an event. The relay wrote a dead letter of it. If
// an operator has discarded it, or published it after an edit, the row is not a problem.
func (c *checker) unreadable(u Unreadable) {
	f := Finding{Kind: UnreadableRow, Aggregate: u.Aggregate, Seq: u.Seq, Detail: u.Problem}
	if len(u.Events) == 1 {
		f.Event = outbox.IDFromUUID(u.Events[0])
	}
	for _, id := range u.Events {
		if n, ok := c.l.byID.Find(&id, c.l.eventID); ok && c.l.events.At(n).partition != none {
			return // counted with its record
		}
		deadLetter, ok := c.l.deadLetters[id]
		if !ok || !deadLetter.mayBelongTo(u.Aggregate.UUID()) {
			continue
		}
		f.Event, f.Detail = outbox.IDFromUUID(id), u.Problem+"; "+deadLetter.Detail
		fate := deadLetterFates[deadLetter.State]
		*c.counts.byFate(fate)++
		if fate != pending { // else it was published since the topics were read
			f.Kind = fateKinds[fate]
			c.report(f)
		}
		return
	}
	c.counts.Unreadable++
	c.report(f)
}

// row checks a row, and reports whether it is a conflict.
func (c *checker) row(e *entry) (conflict bool) {
	f := c.fate(e)
	c.waiting = c.waiting || f == pending
	last := c.last
	c.last = e
	if e.written < c.since {
		return false
	}
	if e.written >= c.until {
		c.counts.Young++
		if f == pending {
			c.counts.Pending++
		}
		return false
	}
	switch {
	case last == nil && c.fromFirst && e.seq != 1:
		c.gap(e, "there is no previous one in the outbox")
	case last != nil && e.seq == last.seq:
		c.conflict(e, last)
		conflict = true
	case last != nil && e.seq != last.seq+1:
		c.gap(e, fmt.Sprintf("the previous one in the outbox is %d", last.seq))
	}
	c.counts.Rows++
	*c.counts.byFate(f)++
	switch f {
	case dead, blocked, closed:
		c.report(c.finding(fateKinds[f], e, c.l.deadLetters[e.id].Detail))
	case missing:
		c.report(c.finding(Missing, e, "written "+clock(e.written)))
	}
	return conflict
}

// gap counts an event without the one before it.
func (c *checker) gap(e *entry, detail string) {
	c.counts.Gaps++
	c.report(c.finding(Gap, e, detail))
}

// order compares the first record of an event with the ones of all earlier events of its
// aggregate.
func (c *checker) order(e *entry) {
	own := -1
	var before *place
	for i := range c.places {
		p := &c.places[i]
		if c.l.samePartition(p.partition, e.partition) {
			own = i
			if e.offset < p.offset {
				before = p
			}
		} else if e.at+c.l.skew(e.partition, p.partition) < p.at {
			before = p
		}
	}
	if before != nil {
		c.counts.Disorder++
		c.report(c.finding(Disorder, e, fmt.Sprintf("event %d is at %s, %s", before.seq,
			c.l.where(before.partition, before.offset), clock(before.at))))
	}
	if own < 0 {
		c.places = append(c.places, place{e.partition, e.offset, e.at, e.seq})
		return
	}
	if p := &c.places[own]; e.offset > p.offset {
		*p = place{e.partition, e.offset, max(e.at, p.at), e.seq}
	}
}

// skew returns by how much the clocks that date the records of two partitions may differ, in
// microseconds: the clocks of brokers do, the relay has one.
func (l *Ledger) skew(a, b uint16) int64 {
	if l.appended[a] || l.appended[b] {
		return clockSkew.Microseconds()
	}
	return 0
}

func (c *checker) doubles() {
	for _, r := range c.l.repeats {
		e := c.l.events.At(r.event)
		f := c.finding(Double, e, "first at "+c.l.where(e.partition, e.offset))
		p := c.l.partitions[r.partition]
		f.Topic, f.Partition, f.Offset = c.l.topics[p.topic].name, &p.number, &r.offset
		c.counts.Doubles++
		c.report(f)
	}
}

func (c *checker) finding(k Kind, e *entry, detail string) Finding {
	f := Finding{Kind: k, Event: c.l.id(&e.id), Aggregate: c.l.id(c.l.aggregates.At(e.aggregate)), Seq: e.seq, Detail: detail}
	if e.partition != none {
		p, offset := c.l.partitions[e.partition], e.offset
		f.Topic, f.Partition, f.Offset = c.l.topics[p.topic].name, &p.number, &offset
	} else if e.topic != none {
		f.Topic = c.l.topics[e.topic].name
	}
	return f
}

func (l *Ledger) where(p uint16, offset int64) string {
	return fmt.Sprintf("%s[%d]@%d", l.topics[l.partitions[p].topic].name, l.partitions[p].number, offset)
}

func clock(micro int64) string {
	return time.UnixMicro(micro).UTC().Format("2006-01-02T15:04:05.000Z")
}

// unknownSince returns the events with a record of this source at or after t and no row.
func (l *Ledger) unknownSince(t int64) (out []Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events.All() {
		if e.written == 0 && e.at >= t {
			out = append(out, Row{
				Event: l.id(&e.id), Aggregate: l.id(l.aggregates.At(e.aggregate)), Seq: e.seq, Topic: l.topics[l.partitions[e.partition].topic].name,
			})
		}
	}
	return out
}
