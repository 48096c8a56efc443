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

// OlderRows tracks the rows of the outbox table that a scan has not offered yet, by
// token range, and the rows that are already published.
//
// The rest of the relay continues during the scan. Before it publishes an event of
// an aggregate that the scan has not reached, it publishes the older rows of that
// aggregate, read by key (Publisher.PassOlder); the scan then skips them.
//
// It is safe for concurrent use. It is called with the publisher's lock held and
// does not take that lock.
type OlderRows struct {
	arc         cdclog.TokenRange // the tokens that the scan covers
	from, until int64             // write times in microseconds, both included
	most        int               // aggregates that may be ahead of the scan

	mu     sync.Mutex
	ranges []olderRange
	ahead  int           // aggregates in all ranges' ahead
	moved  chan struct{} // closed and replaced when a range was scanned
}

// olderRange is a range of tokens.
type olderRange struct {
	open   bool  // not completely scanned
	cursor int64 // last scanned token, included
	// out contains the events of its aggregates that are already in the topics.
	out map[gocql.UUID]struct{}
	// ahead contains, by aggregate, the number up to which older rows were accepted
	// ahead of the scan.
	ahead map[gocql.UUID]int64
}

// NewOlderRows returns the rows of a scan of the tokens a. At most most aggregates may be
// ahead of the scan.
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

// of returns the range of an aggregate, its token, and whether the scan has not
// reached it yet. Called locked.
func (o *OlderRows) of(aggregate gocql.UUID) (r *olderRange, token int64, open bool) {
	token = hint.Token(aggregate)
	r = &o.ranges[o.arc.PartOf(token, len(o.ranges))]
	return r, token, r.open && token > r.cursor
}

// Behind reports whether older rows of the aggregate may still have to be published.
func (o *OlderRows) Behind(aggregate gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, open := o.of(aggregate)
	return open && r.ahead[aggregate] != math.MaxInt64
}

// holdsBack reports whether an event has to wait for older rows of its aggregate. A
// line that begins with 1 proves that all events before its next number were accepted.
func (o *OlderRows) holdsBack(e *outbox.Event, written int64, l line, known, gaps bool) bool {
	if o == nil || e.Sequence == 1 && written > o.until || known && l.first == 1 && !gaps {
		return false
	}
	return o.Behind(e.AggregateID)
}

// old reports whether the scan covers a row.
func (o *OlderRows) old(written int64) bool { return o != nil && written > 0 && written <= o.until }

// took records that a reader other than the scan offered a row.
func (o *OlderRows) took(e *outbox.Event, written int64) {
	if o.old(written) {
		o.Note(e.AggregateID, e.Sequence)
	}
}

// passed records that all older rows of the aggregate were accepted.
func (o *OlderRows) passed(aggregate gocql.UUID) { o.Note(aggregate, math.MaxInt64) }

// Note notes that rows of the aggregate up to that number were passed on ahead of the scan.
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

// AheadOf returns the number up to which older rows of the aggregate were accepted
// ahead of the scan, 0 for none.
func (o *OlderRows) AheadOf(aggregate gocql.UUID) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	return r.ahead[aggregate]
}

// isOut reports whether an event was found in a topic.
func (o *OlderRows) isOut(aggregate, event gocql.UUID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, _, _ := o.of(aggregate)
	_, ok := r.out[event]
	return ok
}

// Scanned records that the scan has offered the rows of the aggregate.
func (o *OlderRows) Scanned(aggregate gocql.UUID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, token, _ := o.of(aggregate)
	r.cursor = max(r.cursor, token)
}

// Close records that the scan has offered range n, and releases the state of the range.
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

// IsOpen reports whether range n is not completely scanned.
func (o *OlderRows) IsOpen(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranges[n].open
}

// ErrTooFarAhead means that the limit of aggregates ahead of the scan is reached:
// all of them are kept in memory.
var ErrTooFarAhead = errors.New("too many aggregates are ahead of the backfill")

// room reports whether another aggregate may be published ahead of the scan; if not,
// wait is closed after the next range is scanned.
func (o *OlderRows) room() (ok bool, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ahead < o.most, o.moved
}

// OlderOf returns the scan in progress, nil if there is none.
func (p *Publisher) OlderOf() *OlderRows {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.older
}

// SetOlder sets the rows that a scan has still to pass on; nil ends the scan.
func (p *Publisher) SetOlder(o *OlderRows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older = o
}

// PassOlder offers the rows of an aggregate that a scan has not reached. The caller
// has claimed the aggregate.
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
			o.Note(aggregate, h.Ahead) // their ids are not in the index, and they are read again
		}
		return err
	}
	o.passed(aggregate)
	return nil
}

// ClaimPassed claims the aggregate after its older rows were accepted. It retries as
// long as the database is unavailable.
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
		p.log.Warn("failed to look up older rows of an aggregate, retrying", "aggregate_id", aggregate, "attempt", attempt, "err", err)
		if err := retry.Wait(ctx, retry.Backoff(p.cfg.RetryMin, time.Second, attempt)); err != nil {
			return nil, err
		}
	}
}

// maxNewerRows bounds the newer rows between two older ones of an aggregate that are
// offered with them. Rows beyond the bound are read from the log, out of sequence.
const maxNewerRows = 1000

// OlderHandover offers the rows of one aggregate, in sequence. The caller has claimed
// the aggregate.
type OlderHandover struct {
	Publisher *Publisher
	Older     *OlderRows
	Ahead     int64
	// newer contains rows that are still in the log; they are offered if an older row
	// follows them, which occurs where two clocks wrote them.
	newer []cdclog.StoredEvent
	// Handed and Known count the rows that were offered and those already published.
	Handed, Known int64
}

// Row processes the next row. settled, if not nil, returns the function to call once
// the row's event is acknowledged; Row does not call settled if nothing is to be waited for.
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

// whenSettled calls settled, if not nil, once the event is no longer in progress.
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

// OlderFound records the events found in the topics, for as many ranges as it has room
// for. It is not safe for concurrent use.
type OlderFound struct {
	older  *OlderRows
	most   int
	Ranges int // events of ranges before this one are kept
	Kept   int
}

// NewOlderFound returns a set of at most most events found in the topics.
func NewOlderFound(o *OlderRows, most int) *OlderFound {
	return &OlderFound{older: o, most: most, Ranges: len(o.ranges)}
}

// Take records an event that was found in a topic.
func (f *OlderFound) Take(aggregate, id gocql.UUID) {
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
	// One range is always kept, whatever its size: the scan covers at least one range.
	for f.Kept > f.most && f.first() < f.Ranges-1 {
		f.Ranges--
		f.Kept -= len(o.ranges[f.Ranges].out)
		o.ranges[f.Ranges].out = nil
	}
}

// first returns the index of the first range that is not completely scanned.
func (f *OlderFound) first() int {
	return slices.IndexFunc(f.older.ranges, func(r olderRange) bool { return r.open })
}
