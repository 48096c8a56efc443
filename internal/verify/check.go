package verify

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Kind is what is wrong with an event.
type Kind string

// The kinds.
const (
	// Missing: the row is there, and its event in no topic.
	Missing Kind = "missing"
	// Double: a record of an event that is in a topic already.
	Double Kind = "double"
	// Disorder: the first record of the event stands before that of an earlier
	// one of its aggregate: in a partition by place, otherwise by the records' times.
	Disorder Kind = "disorder"
	// Gap: the outbox has the event and not the one before it in its aggregate.
	Gap Kind = "gap"
	// UnreadableRow: a row of the outbox is no event.
	UnreadableRow Kind = "unreadable"
	// Unknown: a topic has the event, and the outbox has no row that it came
	// from. Rows that were deleted or had a TTL of their own look like this too.
	Unknown Kind = "unknown"
	// Dead, Parked and Closed: the event is in no topic and has a dead letter,
	// which is open, waits behind another one, or was closed by an operator.
	Dead   Kind = "dead"
	Parked Kind = "parked"
	Closed Kind = "closed"
)

// Finding is one thing that is wrong. Topic, Partition and Offset are where the
// record in question stands; Topic alone is where a missing one is to be.
type Finding struct {
	Kind      Kind       `json:"finding"`
	Event     gocql.UUID `json:"event_id,omitzero"`
	Aggregate gocql.UUID `json:"aggregate_id"`
	Seq       int64      `json:"seq"`
	Topic     string     `json:"topic,omitempty"`
	Partition *int32     `json:"partition,omitempty"`
	Offset    *int64     `json:"offset,omitempty"`
	Detail    string     `json:"detail,omitempty"`
}

// Window says which events are to be there.
type Window struct {
	// Since and Until bound the writes whose events must be in the topics. A
	// zero Since means all from the first on, a zero Until all there are.
	Since, Until time.Time
	// FromFirst says that no row has expired yet, so that an aggregate whose
	// rows begin after 1 has a gap.
	FromFirst bool
	// Alive is from when on rows cannot have expired: older records say nothing
	// about rows. Zero means that none expires.
	Alive time.Time
}

// Counts are the results of a check.
type Counts struct {
	// Rows are the events written within the window, Published those of them
	// that a topic has.
	Rows      int64 `json:"rows"`
	Published int64 `json:"published"`
	// Young are the events written after the window, which are not checked,
	// whether they are in a topic yet or not.
	Young int64 `json:"young"`
	// Pending are events not in a topic yet that have not to be: written after
	// the window, to be delivered later, or waiting for such a one.
	Pending int64 `json:"pending"`
	// Untold are events in no topic where the topic has deleted what is as old.
	Untold int64 `json:"untold"`
	// Dead are events in no topic with an open dead letter, Parked those whose
	// letter waits behind one of their aggregate, Closed those whose letter an
	// operator discarded or settled by hand.
	Dead   int64 `json:"dead"`
	Parked int64 `json:"parked"`
	Closed int64 `json:"closed"`

	Missing    int64 `json:"missing"`
	Doubles    int64 `json:"double"`
	Disorder   int64 `json:"disorder"`
	Gaps       int64 `json:"gaps"`
	Unreadable int64 `json:"unreadable"`
	Unknown    int64 `json:"unknown"`
	// Foreign are records that are no events of an outbox.
	Foreign int64 `json:"foreign"`
}

// Verdict is the result of a check in one word.
type Verdict string

// The verdicts.
const (
	// VerdictOK: every event that was checked is in its topic or has a dead letter.
	VerdictOK Verdict = "ok"
	// VerdictProblems: something is missing, double, out of order or unreadable.
	VerdictProblems Verdict = "problems"
	// VerdictNothingChecked: no problem was found because no event could be
	// checked: there are none, or all are young, pending, or older than their topics.
	VerdictNothingChecked Verdict = "nothing_checked"
)

// Verdict returns the result. Events without a row do not count against it,
// because a row may have been deleted, nor do dead letters: nothing of them is lost.
func (c Counts) Verdict() Verdict {
	switch {
	case c.Missing+c.Doubles+c.Disorder+c.Gaps+c.Unreadable > 0:
		return VerdictProblems
	case c.Published+c.Dead+c.Parked+c.Closed == 0:
		return VerdictNothingChecked
	}
	return VerdictOK
}

// OK returns whether events were checked and nothing is wrong with them.
func (c Counts) OK() bool { return c.Verdict() == VerdictOK }

// checker is one walk over the ledger.
type checker struct {
	l            *Ledger
	since, until int64
	unknownFrom  int64
	fromFirst    bool
	report       func(Finding)
	counts       Counts

	// The aggregate under way.
	aggregate uint32
	begun     bool
	lastSeq   int64 // of its last row, 0 before the first
	waiting   bool  // an event of it is pending
	places    []place
}

// place is the furthest record of an aggregate in one partition.
type place struct {
	partition  uint16
	offset, at int64
	seq        int64
}

// Check holds the records against the rows. Every finding goes to report, which
// may be nil and must not call the ledger.
func (l *Ledger) Check(w Window, report func(Finding)) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	if report == nil {
		report = func(Finding) {}
	}
	c := checker{l: l, until: 1<<63 - 1, fromFirst: w.FromFirst, report: report}
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
	for _, n := range l.sorted() {
		c.take(n)
	}
	c.doubles()
	for _, u := range l.unreadable {
		c.unreadable(u)
	}
	c.counts.Foreign = l.foreign
	return c.counts
}

// take looks at an event; those of an aggregate come in sequence.
func (c *checker) take(n uint32) {
	e := c.l.events.at(n)
	if !c.begun || e.aggregate != c.aggregate {
		c.begun, c.aggregate, c.lastSeq, c.waiting, c.places = true, e.aggregate, 0, false, c.places[:0]
	}
	if e.written != 0 {
		c.row(n, e)
	} else if e.at >= c.unknownFrom && e.at < c.until {
		c.counts.Unknown++
		c.report(c.finding(Unknown, e, ""))
	}
	if e.partition != none {
		c.order(e)
	}
}

// fate is what became of an event that the outbox has.
type fate int

const (
	published fate = iota
	pending        // not in a topic, and it need not be
	untold         // not in a topic that has deleted what is as old
	dead           // not in a topic, but in the dead letters
	parked         // not in a topic, its dead letter waits behind another one
	closed         // not in a topic, and an operator decided so
	missing
)

func (c *checker) fate(n uint32, e *entry) fate {
	if e.partition != none {
		return published
	}
	if letter, ok := c.l.letters[e.id]; ok {
		return letterFates[letter.State]
	}
	switch {
	case c.waiting || max(e.written, c.l.later[n]) >= c.until:
		return pending
	case e.written < c.l.topics[e.topic].horizon:
		return untold
	}
	return missing
}

// letterFates are the fates of events that are in no topic, by their letters.
var letterFates = map[LetterState]fate{LetterOpen: dead, LetterParked: parked, LetterClosed: closed, LetterLate: pending}

// unreadable counts a row that is no event. The relay made a dead letter of it, which
// an operator may have discarded or published after an edit: then the row is no problem.
func (c *checker) unreadable(u Unreadable) {
	f := Finding{Kind: UnreadableRow, Aggregate: u.Aggregate, Seq: u.Seq, Detail: u.Problem}
	for _, id := range u.Events {
		if n, ok := c.l.byID.find(&id, c.l.eventID); ok && c.l.events.at(n).partition != none {
			return // counted with its record
		}
		letter, ok := c.l.letters[id]
		if !ok {
			continue
		}
		f.Event, f.Detail = id, u.Problem+"; "+letter.Detail
		switch letterFates[letter.State] {
		case dead:
			f.Kind = Dead
			c.counts.Dead++
		case parked:
			f.Kind = Parked
			c.counts.Parked++
		case closed:
			f.Kind = Closed
			c.counts.Closed++
		default: // published since the topics were read
			c.counts.Pending++
			return
		}
		c.report(f)
		return
	}
	c.counts.Unreadable++
	c.report(f)
}

func (c *checker) row(n uint32, e *entry) {
	f := c.fate(n, e)
	c.waiting = c.waiting || f == pending
	last := c.lastSeq
	c.lastSeq = e.seq
	if e.written < c.since {
		return
	}
	if e.written >= c.until {
		c.counts.Young++
		if f == pending {
			c.counts.Pending++
		}
		return
	}
	if gap := e.seq != last+1; gap && (last != 0 || c.fromFirst) {
		c.counts.Gaps++
		detail := fmt.Sprintf("the one before it in the outbox is %d", last)
		if last == 0 {
			detail = "there is none before it in the outbox"
		}
		c.report(c.finding(Gap, e, detail))
	}
	c.counts.Rows++
	switch f {
	case published:
		c.counts.Published++
	case pending:
		c.counts.Pending++
	case untold:
		c.counts.Untold++
	case dead:
		c.counts.Dead++
		c.report(c.finding(Dead, e, c.l.letters[e.id].Detail))
	case parked:
		c.counts.Parked++
		c.report(c.finding(Parked, e, c.l.letters[e.id].Detail))
	case closed:
		c.counts.Closed++
		c.report(c.finding(Closed, e, c.l.letters[e.id].Detail))
	case missing:
		c.counts.Missing++
		c.report(c.finding(Missing, e, "written "+clock(e.written)))
	}
}

// order holds the first record of an event against those of all before it in
// its aggregate.
func (c *checker) order(e *entry) {
	own := -1
	var before *place
	for i := range c.places {
		p := &c.places[i]
		if p.partition == e.partition {
			own = i
			if e.offset < p.offset {
				before = p
			}
		} else if e.at < p.at {
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

func (c *checker) doubles() {
	for _, r := range c.l.repeats {
		e := c.l.events.at(r.event)
		f := c.finding(Double, e, "first at "+c.l.where(e.partition, e.offset))
		p := c.l.partitions[r.partition]
		f.Topic, f.Partition, f.Offset = c.l.topics[p.topic].name, &p.number, &r.offset
		c.counts.Doubles++
		c.report(f)
	}
}

func (c *checker) finding(k Kind, e *entry, detail string) Finding {
	f := Finding{Kind: k, Event: e.id, Aggregate: *c.l.aggregates.at(e.aggregate), Seq: e.seq, Detail: detail}
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

// unknownSince are the events with a record at or after t and no row.
func (l *Ledger) unknownSince(t int64) (out []Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events.all() {
		if e.written == 0 && e.at >= t {
			out = append(out, Row{
				Event: e.id, Aggregate: *l.aggregates.at(e.aggregate), Seq: e.seq, Topic: l.topics[l.partitions[e.partition].topic].name,
			})
		}
	}
	return out
}
