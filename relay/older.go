package relay

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// olderRows are the rows of the outbox table that a scan has still to hand on,
// by token range, and what is known to be out of them already.
//
// The rest of the relay goes on meanwhile. It must not hand on an event of an
// aggregate whose older rows the scan has not come to: they go first, read by
// key (publisher.passOlder), and the scan then finds them handed on.
//
// It is safe for concurrent use; it is called with the publisher's lock held and
// takes none itself.
type olderRows struct {
	arc         cdclog.TokenRange // the tokens that the scan is about
	from, until int64             // write times in microseconds, both included
	most        int               // aggregates that may be ahead of the scan

	mu     sync.Mutex
	ranges []olderRange
	ahead  int           // aggregates in all ranges' ahead
	moved  chan struct{} // closed and replaced when a range was scanned
}

// olderRange is a range of tokens.
type olderRange struct {
	open   bool  // still to be scanned
	cursor int64 // up to this token, included, it is
	// out are the events of its aggregates that are in the topics already.
	out map[gocql.UUID]struct{}
	// ahead are the aggregates of which older rows were handed on ahead of the
	// scan, and the number up to which.
	ahead map[gocql.UUID]int64
}

func newOlderRows(row *checkpoint.Scan, a cdclog.TokenRange, most int) *olderRows {
	o := &olderRows{
		arc:  a,
		from: math.MinInt64, until: row.Until.UnixMicro(), most: most,
		ranges: make([]olderRange, row.Ranges), moved: make(chan struct{}),
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

// of is the range of an aggregate, and whether the scan has still to come to it. Called locked.
func (o *olderRows) of(aggregate gocql.UUID) (r *olderRange, token int64, open bool) {
	token = hint.Token(aggregate)
	r = &o.ranges[o.arc.PartOf(token, len(o.ranges))]
	return r, token, r.open && token > r.cursor
}

// behind says whether older rows of the aggregate may still have to be handed on.
func (o *olderRows) behind(aggregate gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	return open && r.ahead[aggregate] != math.MaxInt64
}

// holdsBack says whether an event has to wait for older rows of its aggregate. A
// line says that all before the next number is handed on, if it begins with 1.
func (o *olderRows) holdsBack(e *outbox.Event, written int64, l line, known, gaps bool) bool {
	if o == nil || e.Sequence == 1 && written > o.until || known && l.first == 1 && !gaps {
		return false
	}
	return o.behind(e.AggregateID)
}

// old says whether the scan answers for a row.
func (o *olderRows) old(written int64) bool { return o != nil && written > 0 && written <= o.until }

// took notes that a row was handed on by somebody else than the scan.
func (o *olderRows) took(e *outbox.Event, written int64) {
	if o.old(written) {
		o.note(e.AggregateID, e.Sequence)
	}
}

// passed notes that all older rows of the aggregate are handed on.
func (o *olderRows) passed(aggregate gocql.UUID) { o.note(aggregate, math.MaxInt64) }

func (o *olderRows) note(aggregate gocql.UUID, upTo int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	if !open {
		return
	}
	if r.ahead == nil {
		r.ahead = make(map[gocql.UUID]int64)
	}
	before, ok := r.ahead[aggregate]
	if !ok {
		o.ahead++
	}
	r.ahead[aggregate] = max(before, upTo)
}

// aheadOf is the number up to which older rows of the aggregate are handed on
// ahead of the scan, 0 for none.
func (o *olderRows) aheadOf(aggregate gocql.UUID) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	return r.ahead[aggregate]
}

// isOut says whether an event was found in a topic.
func (o *olderRows) isOut(aggregate, event gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	_, ok := r.out[event]
	return ok
}

// scanned notes that the scan has handed on the rows of the aggregate.
func (o *olderRows) scanned(aggregate gocql.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, _ := o.of(aggregate)
	r.cursor = max(r.cursor, token)
}

// close notes that the scan has handed on range n, and forgets what it knew of it.
func (o *olderRows) close(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead -= len(o.ranges[n].ahead)
	o.ranges[n] = olderRange{cursor: math.MaxInt64}
	close(o.moved)
	o.moved = make(chan struct{})
}

// part returns the tokens of range n.
func (o *olderRows) part(n int) cdclog.TokenRange { return o.arc.Part(n, len(o.ranges)) }

// isOpen says whether range n is still to be scanned.
func (o *olderRows) isOpen(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranges[n].open
}

// errTooFarAhead says that the older rows of no more aggregates may be handed on
// ahead of the scan: all of them have to be remembered.
var errTooFarAhead = errors.New("too many aggregates are ahead of the backfill")

// room says whether another aggregate may go ahead of the scan; if not, wait is
// closed when it is worth another try.
func (o *olderRows) room() (ok bool, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead < o.most, o.moved
}

// olderOf is the scan under way, nil if there is none.
func (p *publisher) olderOf() *olderRows {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.older
}

func (p *publisher) setOlder(o *olderRows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older = o
}

// passOlder hands on the rows of an aggregate that a scan has still to come to.
// The caller has claimed the aggregate.
func (p *publisher) passOlder(ctx context.Context, find cdclog.Lookup, aggregate gocql.UUID) error {
	o := p.olderOf()
	if o == nil || !o.behind(aggregate) {
		return nil
	}
	h := olderHandover{publisher: p, older: o, ahead: o.aheadOf(aggregate)}
	if ok, _ := o.room(); !ok && h.ahead == 0 {
		return errTooFarAhead
	}
	if err := find(ctx, &outbox.Event{AggregateID: aggregate}, 1, math.MaxInt64, func(f cdclog.StoredEvent) error {
		err := h.row(ctx, &f, nil)
		if err == nil && o.old(f.Written) {
			h.ahead = max(h.ahead, f.Sequence)
		}
		return err
	}); err != nil {
		if h.ahead > 0 {
			o.note(aggregate, h.ahead) // their ids are not remembered, and they are read again
		}
		return err
	}
	o.passed(aggregate)
	return nil
}

// claimPassed is claim, with the older rows of the aggregate handed on. It
// waits, however long the database is away.
func (p *publisher) claimPassed(ctx context.Context, find cdclog.Lookup, aggregate gocql.UUID) (release func(), err error) {
	for attempt := 1; ; attempt++ {
		release, err := p.claim(ctx, aggregate)
		if err != nil {
			return nil, err
		}
		if err = p.passOlder(ctx, find, aggregate); err == nil {
			return release, nil
		}
		release()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, failure.ErrStopping), failure.Classify(err) == failure.Fatal:
			return nil, err
		case errors.Is(err, errTooFarAhead):
			if _, wait := p.olderOf().room(); wait != nil {
				select {
				case <-wait:
				case <-ctx.Done():
				}
			}
			continue
		}
		p.log.Warn("cannot look up the older rows of an aggregate; trying again", "aggregate_id", aggregate, "attempt", attempt, "err", err)
		if err := retry.Wait(ctx, retry.Backoff(p.cfg.RetryMin, time.Second, attempt)); err != nil {
			return nil, err
		}
	}
}

// maxNewerRows bounds the newer rows between two older ones of an aggregate that
// are handed on with them. What is beyond comes by the log, out of sequence.
const maxNewerRows = 1000

// olderHandover hands on the rows of one aggregate, in sequence. Whoever uses it
// has claimed the aggregate.
type olderHandover struct {
	publisher *publisher
	older     *olderRows
	ahead     int64
	// newer are rows that the log still has; they are handed on if an older one
	// comes after them, which is so where two clocks wrote them.
	newer []cdclog.StoredEvent
	// handed and known count the rows that were handed on and that were out.
	handed, known int64
}

// row takes the next row. settled, if not nil, makes what is called once the
// row's event is acknowledged; it is not asked for where that needs no waiting.
func (h *olderHandover) row(ctx context.Context, f *cdclog.StoredEvent, settled func() func()) error {
	if !h.older.old(f.Written) {
		if len(h.newer) < maxNewerRows {
			h.newer = append(h.newer, *f)
		}
		return nil
	}
	for i := range h.newer {
		if err := h.hand(ctx, &h.newer[i], settled); err != nil {
			return err
		}
	}
	h.newer = h.newer[:0]
	return h.hand(ctx, f, settled)
}

func (h *olderHandover) hand(ctx context.Context, f *cdclog.StoredEvent, settled func() func()) error {
	if f.Written < h.older.from || h.older.isOut(f.AggregateID, f.ID) {
		h.known++
		return nil
	}
	var done func()
	if settled != nil {
		done = settled()
	}
	if f.Sequence <= h.ahead {
		h.known++
		h.publisher.whenSettled(f.ID, done)
		return nil
	}
	h.handed++
	_, err := h.publisher.offer(ctx, &offer{
		event: f.Event, written: f.Written, bad: f.Err, by: byBackfill, owner: true, anyway: true, settled: done,
	})
	return err
}

// whenSettled calls settled, if not nil, once the event is no longer under way.
func (p *publisher) whenSettled(id gocql.UUID, settled func()) {
	if settled == nil {
		return
	}
	p.mu.Lock()
	it := p.items[id]
	if it != nil {
		it.settled = append(it.settled, settled)
	}
	p.mu.Unlock()
	if it == nil {
		settled()
	}
}

// olderFound keeps which events are in the topics, of as many ranges as there is room
// for. It is not safe for concurrent use.
type olderFound struct {
	older  *olderRows
	most   int
	ranges int // it keeps what belongs to ranges before this one
	kept   int
}

func newOlderFound(o *olderRows, most int) *olderFound {
	return &olderFound{older: o, most: most, ranges: len(o.ranges)}
}

// take notes an event that was found in a topic.
func (f *olderFound) take(aggregate, id gocql.UUID) {
	o := f.older
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, open := o.of(aggregate)
	if !open || o.arc.PartOf(token, len(o.ranges)) >= f.ranges {
		return
	}
	if r.out == nil {
		r.out = make(map[gocql.UUID]struct{})
	}
	before := len(r.out)
	r.out[id] = struct{}{}
	f.kept += len(r.out) - before
	// One range is always kept: a part of the scan has to be that large.
	for f.kept > f.most && f.first() < f.ranges-1 {
		f.ranges--
		f.kept -= len(o.ranges[f.ranges].out)
		o.ranges[f.ranges].out = nil
	}
}

// first is the first range that is still to be scanned.
func (f *olderFound) first() int {
	return slices.IndexFunc(f.older.ranges, func(r olderRange) bool { return r.open })
}
