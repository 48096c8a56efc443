package publish

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
)

// OlderRows returns the scan in progress, nil if there is none.
func (p *Publisher) OlderRows() (o *older.Rows) {
	p.ask(func(c *cell) { o = c.older })
	return o
}

// SetOlder sets the rows that a scan has still to pass on; nil ends the scan.
func (p *Publisher) SetOlder(o *older.Rows) {
	p.ask(func(c *cell) { c.older = o })
}

// passOlder offers the rows of an aggregate that a scan has not reached. The caller
// has claimed the aggregate.
func (p *Publisher) passOlder(ctx context.Context, find cdclog.Lookup, aggregate outbox.ID) error {
	o := p.OlderRows()
	if o == nil || !o.Behind(aggregate) {
		return nil
	}
	h := OlderHandover{Publisher: p, Older: o, Ahead: o.AcceptedUpTo(aggregate)}
	if ok, _ := o.Room(); !ok && h.Ahead == 0 {
		return older.ErrTooFarAhead
	}
	if err := find(ctx, &outbox.Event{AggregateID: aggregate}, 1, math.MaxInt64, func(f cdclog.StoredEvent) error {
		err := h.Row(ctx, &f, nil)
		if err == nil && o.Old(f.Written) {
			h.Ahead = max(h.Ahead, f.Sequence)
		}
		return err
	}); err != nil {
		if h.Ahead > 0 {
			o.Note(aggregate, h.Ahead) // their ids are not in the index, and they are read again
		}
		return err
	}
	o.Passed(aggregate)
	return nil
}

// TryClaimPassed is ClaimPassed without waiting. If release and err are nil, another
// caller has the claim. The error is ErrLeft if a scan has to advance first.
func (p *Publisher) TryClaimPassed(ctx context.Context, find cdclog.Lookup, aggregate outbox.ID) (release func(), err error) {
	release, _ = p.tryClaim(aggregate.UUID())
	if release == nil {
		return nil, nil
	}
	if err := p.passOlder(ctx, find, aggregate); err != nil {
		release()
		if errors.Is(err, older.ErrTooFarAhead) {
			err = ErrLeft
		}
		return nil, err
	}
	return release, nil
}

// ClaimPassed claims the aggregate after its older rows were accepted. It retries as
// long as the database is unavailable.
func (p *Publisher) ClaimPassed(ctx context.Context, find cdclog.Lookup, aggregate outbox.ID) (release func(), err error) {
	for attempt := 1; ; attempt++ {
		release, err := p.Claim(ctx, aggregate.UUID())
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
		case errors.Is(err, older.ErrTooFarAhead):
			if _, wait := p.OlderRows().Room(); wait != nil {
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
	Older     *older.Rows
	Ahead     int64
	// newer contains rows that are still in the log; they are offered if an older row
	// follows them, which occurs where two clocks wrote them.
	newer []cdclog.StoredEvent
	// Handed and Known count the rows that were offered and those already published.
	Handed, Known int64
}

// Row processes the next row. settled, if not nil, returns where the settlement of the row's event
// goes; Row does not call settled if nothing is to be waited for.
func (h *OlderHandover) Row(ctx context.Context, f *cdclog.StoredEvent, settled func() Settlement) error {
	if !h.Older.Old(f.Written) && !withoutTime(f) {
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

// withoutTime reports whether a row lacks the column whose write time is that of the event, such as
// its id: it cannot be published, and counts as old, because the log may not contain it.
func withoutTime(f *cdclog.StoredEvent) bool { return f.Err != nil && f.Written == 0 }

func (h *OlderHandover) hand(ctx context.Context, f *cdclog.StoredEvent, settled func() Settlement) error {
	if !withoutTime(f) && h.Older.Known(f.AggregateID, f.ID, f.Written) {
		h.Known++
		return nil
	}
	var done Settlement
	if settled != nil {
		done = settled()
	}
	if f.Sequence <= h.Ahead && (f.Err == nil || f.Sequence > 0) { // a row without a number has no place in the aggregate
		h.Known++
		h.Publisher.whenSettled(&f.Event, done)
		return nil
	}
	h.Handed++
	return h.Publisher.Submit(ctx, *f, ByBackfill, done)
}
