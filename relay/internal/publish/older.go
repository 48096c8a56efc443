package publish

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

// OlderRows are the rows of the outbox table that a scan has still to hand on,
// by token range, and what is known to be out of them already.
//
// The rest of the relay goes on meanwhile. It must not hand on an event of an
// aggregate whose older rows the scan has not come to: they go first, read by
// key (publisher.passOlder), and the scan then finds them handed on.
//
// It is safe for concurrent use; it is called with the publisher's lock held and
// takes none itself.
type OlderRows struct {
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

func NewOlderRows(row *checkpoint.Scan, a cdclog.TokenRange, most int) *OlderRows {
	o := &OlderRows{
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
func (o *OlderRows) of(aggregate gocql.UUID) (r *olderRange, token int64, open bool) {
	token = hint.Token(aggregate)
	r = &o.ranges[o.arc.PartOf(token, len(o.ranges))]
	return r, token, r.open && token > r.cursor
}

// Behind says whether older rows of the aggregate may still have to be handed on.
func (o *OlderRows) Behind(aggregate gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	return open && r.ahead[aggregate] != math.MaxInt64
}

// holdsBack says whether an event has to wait for older rows of its aggregate. A
// line says that all before the next number is handed on, if it begins with 1.
func (o *OlderRows) holdsBack(e *outbox.Event, written int64, l line, known, gaps bool) bool {
	if o == nil || e.Sequence == 1 && written > o.until || known && l.first == 1 && !gaps {
		return false
	}
	return o.Behind(e.AggregateID)
}

// old says whether the scan answers for a row.
func (o *OlderRows) old(written int64) bool { return o != nil && written > 0 && written <= o.until }

// took notes that a row was handed on by somebody else than the scan.
func (o *OlderRows) took(e *outbox.Event, written int64) {
	if o.old(written) {
		o.Note(e.AggregateID, e.Sequence)
	}
}

// passed notes that all older rows of the aggregate are handed on.
func (o *OlderRows) passed(aggregate gocql.UUID) { o.Note(aggregate, math.MaxInt64) }

func (o *OlderRows) Note(aggregate gocql.UUID, upTo int64) {
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

// AheadOf is the number up to which older rows of the aggregate are handed on
// ahead of the scan, 0 for none.
func (o *OlderRows) AheadOf(aggregate gocql.UUID) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	return r.ahead[aggregate]
}

// isOut says whether an event was found in a topic.
func (o *OlderRows) isOut(aggregate, event gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	_, ok := r.out[event]
	return ok
}

// Scanned notes that the scan has handed on the rows of the aggregate.
func (o *OlderRows) Scanned(aggregate gocql.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, _ := o.of(aggregate)
	r.cursor = max(r.cursor, token)
}

// Close notes that the scan has handed on range n, and forgets what it knew of it.
func (o *OlderRows) Close(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead -= len(o.ranges[n].ahead)
	o.ranges[n] = olderRange{cursor: math.MaxInt64}
	close(o.moved)
	o.moved = make(chan struct{})
}

// Part returns the tokens of range n.
func (o *OlderRows) Part(n int) cdclog.TokenRange { return o.arc.Part(n, len(o.ranges)) }

// IsOpen says whether range n is still to be scanned.
func (o *OlderRows) IsOpen(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranges[n].open
}

// ErrTooFarAhead says that the older rows of no more aggregates may be handed on
// ahead of the scan: all of them have to be remembered.
var ErrTooFarAhead = errors.New("too many aggregates are ahead of the backfill")

// room says whether another aggregate may go ahead of the scan; if not, wait is
// closed when it is worth another try.
func (o *OlderRows) room() (ok bool, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead < o.most, o.moved
}

// OlderOf is the scan under way, nil if there is none.
func (p *Publisher) OlderOf() *OlderRows {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.older
}

func (p *Publisher) SetOlder(o *OlderRows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older = o
}

// PassOlder hands on the rows of an aggregate that a scan has still to come to.
// The caller has claimed the aggregate.
func (p *Publisher) PassOlder(ctx context.Context, find cdclog.Lookup, aggregate gocql.UUID) error {
	o := p.OlderOf()
	if o == nil || !o.Behind(aggregate) {
		return nil
	}
	h := OlderHandover{Publisher: p, Older: o, Ahead: o.AheadOf(aggregate)}
	if ok, _ := o.room(); !ok && h.Ahead == 0 {
		return ErrTooFarAhead
	}
	if err := find(ctx, &outbox.Event{AggregateID: aggregate}, 1, math.MaxInt64, func(f cdclog.StoredEvent) error {
		err := h.Row(ctx, &f, nil)
		if err == nil && o.old(f.Written) {
			h.Ahead = max(h.Ahead, f.Sequence)
		}
		return err
	}); err != nil {
		if h.Ahead > 0 {
			o.Note(aggregate, h.Ahead) // their ids are not remembered, and they are read again
		}
		return err
	}
	o.passed(aggregate)
	return nil
}

// ClaimPassed is claim, with the older rows of the aggregate handed on. It
// waits, however long the database is away.
func (p *Publisher) ClaimPassed(ctx context.Context, find cdclog.Lookup, aggregate gocql.UUID) (release func(), err error) {
	for attempt := 1; ; attempt++ {
		release, err := p.Claim(ctx, aggregate)
		if err != nil {
			return nil, err
		}
		if err = p.PassOlder(ctx, find, aggregate); err == nil {
			return release, nil
		}
		release()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, failure.ErrStopping), failure.Classify(err) == failure.Fatal:
			return nil, err
		case errors.Is(err, ErrTooFarAhead):
			if _, wait := p.OlderOf().room(); wait != nil {
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

// OlderHandover hands on the rows of one aggregate, in sequence. Whoever uses it
// has claimed the aggregate.
type OlderHandover struct {
	Publisher *Publisher
	Older     *OlderRows
	Ahead     int64
	// newer are rows that the log still has; they are handed on if an older one
	// comes after them, which is so where two clocks wrote them.
	newer []cdclog.StoredEvent
	// Handed and known count the rows that were handed on and that were out.
	Handed, Known int64
}

// Row takes the next row. settled, if not nil, makes what is called once the
// row's event is acknowledged; it is not asked for where that needs no waiting.
func (h *OlderHandover) Row(ctx context.Context, f *cdclog.StoredEvent, settled func() func()) error {
	if !h.Older.old(f.Written) {
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

func (h *OlderHandover) hand(ctx context.Context, f *cdclog.StoredEvent, settled func() func()) error {
	if f.Written < h.Older.from || h.Older.isOut(f.AggregateID, f.ID) {
		h.Known++
		return nil
	}
	var done func()
	if settled != nil {
		done = settled()
	}
	if f.Sequence <= h.Ahead {
		h.Known++
		h.Publisher.whenSettled(f.ID, done)
		return nil
	}
	h.Handed++
	_, err := h.Publisher.Offer(ctx, &Offer{
		Event: f.Event, Written: f.Written, Bad: f.Err, By: ByBackfill, Owner: true, Anyway: true, Settled: done,
	})
	return err
}

// whenSettled calls settled, if not nil, once the event is no longer under way.
func (p *Publisher) whenSettled(id gocql.UUID, settled func()) {
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
	older  *OlderRows
	most   int
	Ranges int // it keeps what belongs to ranges before this one
	Kept   int
}

func NewOlderFound(o *OlderRows, most int) *olderFound {
	return &olderFound{older: o, most: most, Ranges: len(o.ranges)}
}

// Take notes an event that was found in a topic.
func (f *olderFound) Take(aggregate, id gocql.UUID) {
	o := f.older
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, open := o.of(aggregate)
	if !open || o.arc.PartOf(token, len(o.ranges)) >= f.Ranges {
		return
	}
	if r.out == nil {
		r.out = make(map[gocql.UUID]struct{})
	}
	before := len(r.out)
	r.out[id] = struct{}{}
	f.Kept += len(r.out) - before
	// One range is always kept: a part of the scan has to be that large.
	for f.Kept > f.most && f.first() < f.Ranges-1 {
		f.Ranges--
		f.Kept -= len(o.ranges[f.Ranges].out)
		o.ranges[f.Ranges].out = nil
	}
}

// first is the first range that is still to be scanned.
func (f *olderFound) first() int {
	return slices.IndexFunc(f.older.ranges, func(r olderRange) bool { return r.open })
}
