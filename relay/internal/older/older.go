package older

import (
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Rows tracks the rows of the outbox table that a scan has not offered yet, by
// token range, and the rows that are already published.
//
// The rest of the relay continues during the scan. Before it publishes an event of
// an aggregate that the scan has not reached, it publishes the older rows of that
// aggregate, read by key (publish.Publisher.ClaimPassed); the scan then skips them.
//
// It is safe for concurrent use.
type Rows struct {
	table       outbox.Table
	arc         cdclog.TokenRange // the tokens that the scan covers
	from, until int64             // write times in microseconds, both included
	most        func() int        // aggregates that may be ahead of the scan

	mu     sync.Mutex
	ranges []span
	ahead  int           // aggregates in all ranges' ahead
	moved  chan struct{} // closed and replaced when a range was scanned
}

// span is a range of tokens.
type span struct {
	open   bool  // not completely scanned
	cursor int64 // last scanned token, included
	// out contains the events of its aggregates that are already in the topics.
	out map[gocql.UUID]struct{}
	// ahead contains, by aggregate, the number up to which older rows were accepted
	// ahead of the scan.
	ahead map[gocql.UUID]int64
}

// New returns the rows of a scan of the tokens a of a table. At most most aggregates, which may
// change, may be ahead of the scan.
func New(table outbox.Table, row *checkpoint.Scan, a cdclog.TokenRange, most func() int) *Rows {
	o := &Rows{
		table: table, arc: a,
		from: math.MinInt64, until: row.Until.UnixMicro(), most: most,
		ranges: make([]span, row.Ranges), moved: make(chan struct{}),
	}
	if !row.From.IsZero() {
		o.from = row.From.UnixMicro()
	}
	for n := range o.ranges {
		o.ranges[n].cursor = math.MinInt64
		o.ranges[n].open = !slices.Contains(row.Done, n)
	}
	return o
}

// of returns the range of an aggregate, its token, and whether the scan has not
// reached it yet. Called locked.
func (o *Rows) of(aggregate outbox.ID) (r *span, token int64, open bool) {
	token = rows.Token(o.table, aggregate)
	r = &o.ranges[o.arc.FindPart(token, len(o.ranges))]
	return r, token, r.open && token > r.cursor
}

// Behind reports whether older rows of the aggregate may still have to be published.
func (o *Rows) Behind(aggregate outbox.ID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	return open && r.ahead[aggregate.UUID()] != math.MaxInt64
}

// HoldsBack reports whether an event has to wait for older rows of its aggregate. A
// line that begins with 1 proves that all events before its next number were accepted.
func (o *Rows) HoldsBack(e *outbox.Event, written int64, l dedup.Line, known, gaps bool) bool {
	if o == nil || e.Sequence == 1 && written > o.until || known && l.First == 1 && !gaps {
		return false
	}
	return o.Behind(e.AggregateID)
}

// Old reports whether the scan covers a row.
func (o *Rows) Old(written int64) bool { return o != nil && written > 0 && written <= o.until }

// Took records that a reader other than the scan offered a row.
func (o *Rows) Took(e *outbox.Event, written int64) {
	if o.Old(written) {
		o.Note(e.AggregateID, e.Sequence)
	}
}

// Passed records that all older rows of the aggregate were accepted.
func (o *Rows) Passed(aggregate outbox.ID) { o.Note(aggregate, math.MaxInt64) }

// Note notes that rows of the aggregate up to that number were passed on ahead of the scan.
func (o *Rows) Note(aggregate outbox.ID, upTo int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	if !open {
		return
	}
	if r.ahead == nil {
		r.ahead = make(map[gocql.UUID]int64)
	}
	before, ok := r.ahead[aggregate.UUID()]
	if !ok {
		o.ahead++
	}
	r.ahead[aggregate.UUID()] = max(before, upTo)
}

// AcceptedUpTo returns the number up to which older rows of the aggregate were accepted
// ahead of the scan, 0 for none.
func (o *Rows) AcceptedUpTo(aggregate outbox.ID) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	return r.ahead[aggregate.UUID()]
}

// Known reports whether the scan need not offer a row that it covers: the row is older than
// the scan reaches, or the event was found in a topic.
func (o *Rows) Known(aggregate, event outbox.ID, written int64) bool {
	if written < o.from {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	_, ok := r.out[event.UUID()]
	return ok
}

// Scanned records that the scan has offered the rows of the aggregate.
func (o *Rows) Scanned(aggregate outbox.ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, _ := o.of(aggregate)
	r.cursor = max(r.cursor, token)
}

// Close records that the scan has offered range n, and releases the state of the range.
func (o *Rows) Close(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead -= len(o.ranges[n].ahead)
	o.ranges[n] = span{cursor: math.MaxInt64}
	close(o.moved)
	o.moved = make(chan struct{})
}

// Part returns the tokens of range n.
func (o *Rows) Part(n int) cdclog.TokenRange { return o.arc.Part(n, len(o.ranges)) }

// IsOpen reports whether range n is not completely scanned.
func (o *Rows) IsOpen(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranges[n].open
}

// ErrTooFarAhead means that the limit of aggregates ahead of the scan is reached:
// all of them are kept in memory.
var ErrTooFarAhead = errors.New("too many aggregates are ahead of the backfill")

// Room reports whether another aggregate may be published ahead of the scan; if not, wait is closed after the next range is scanned.
func (o *Rows) Room() (ok bool, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead < o.most(), o.moved
}

// Found records the events found in the topics, for as many ranges as it has room
// for. It is not safe for concurrent use.
type Found struct {
	older  *Rows
	most   int
	Ranges int // events of ranges before this one are kept
	Kept   int
}

// NewFound returns a set of at most most events found in the topics.
func NewFound(o *Rows, most int) *Found {
	return &Found{older: o, most: most, Ranges: len(o.ranges)}
}

// Take records an event that was found in a topic, of an aggregate with the token.
func (f *Found) Take(token int64, id gocql.UUID) {
	o := f.older
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.arc.FindPart(token, len(o.ranges))
	r := &o.ranges[n]
	if !r.open || token <= r.cursor || n >= f.Ranges {
		return
	}
	if r.out == nil {
		r.out = make(map[gocql.UUID]struct{})
	}
	before := len(r.out)
	r.out[id] = struct{}{}
	f.Kept += len(r.out) - before
	// One range is always kept, whatever its size: the scan covers at least one range.
	for f.Kept > f.most && f.first() < f.Ranges-1 {
		f.Ranges--
		f.Kept -= len(o.ranges[f.Ranges].out)
		o.ranges[f.Ranges].out = nil
	}
}

// first returns the index of the first range that is not completely scanned.
func (f *Found) first() int {
	return slices.IndexFunc(f.older.ranges, func(r span) bool { return r.open })
}
