package relay

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// predecessors finds out which rows of an aggregate are still to be published before
// an event of it, where nothing is remembered of the aggregate: after a start, or when
// it was forgotten. Tail and sweep share the rule.
//
// How far the sweep has read proves nothing: a row may have become visible behind it.
//
//   - A row whose id is in the dedup index is published, or will be.
//   - One that was written after this run began to read its stream, and after every id
//     that was forgotten, would be in the dedup index. It is not published.
//   - Any other row is doubtful. Rows are published by their numbers, so the last of
//     them decides for those before it.
//
// The topics prove whether it is published (proofs).
type predecessors struct {
	publisher *publisher
	lookup    cdclog.Lookup
	quick     bool // a proof that takes long is left to the sweep
}

// prover finds out whether an event is published that the dedup index does not have. With
// quick set it returns an error where that takes long.
type prover interface {
	prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (published bool, err error)
}

// prove asks the prover; without one the event counts as published.
func (p *publisher) prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (bool, error) {
	if p.proofs == nil {
		return true, nil
	}
	return p.proofs.prove(ctx, f, quick)
}

// setProver sets the prover, before events are offered.
func (p *publisher) setProver(to prover) { p.proofs = to }

// earlierRows are an aggregate's rows before an event.
type earlierRows struct {
	// published is the number of the last row that is published; 0 without one. All
	// rows behind it are not.
	published int64
	// missed is the first row that is not published though a later one is.
	missed int64
	// lowest and highest are the first and the last row; 0 without rows.
	lowest, highest int64
}

// late says whether rows are to be published behind later ones.
func (r *earlierRows) late() bool { return r.missed > 0 && r.missed < r.published }

// find reads the rows of an aggregate below a number. began is from when this run reads
// its stream, in microseconds; no id of a row written after remembered is forgotten.
func (d *predecessors) find(ctx context.Context, of *outbox.Event, to, began, remembered int64) (out earlierRows, err error) {
	for {
		var doubt *cdclog.StoredEvent
		lowest, highest := int64(0), int64(0)
		if err := d.lookup(ctx, of, 1, to, func(f cdclog.StoredEvent) error {
			if lowest == 0 {
				lowest = f.Sequence
			}
			highest = f.Sequence
			switch d.publisher.fate(&f, began, remembered) {
			case fateUnpublished:
				if out.missed == 0 || f.Sequence < out.missed {
					out.missed = f.Sequence
				}
			case fatePublished:
				out.published, doubt = f.Sequence, nil
			case fateDoubtful:
				f.Payload = nil
				doubt = &f
			}
			return nil
		}); err != nil {
			return out, err
		}
		if lowest > 0 && out.lowest == 0 {
			out.lowest, out.highest = lowest, highest
		}
		if doubt == nil {
			return out, nil
		}
		published, err := d.publisher.prove(ctx, doubt, d.quick)
		if err != nil {
			return out, err
		}
		if published {
			out.published = doubt.Sequence
			return out, nil
		}
		to = doubt.Sequence
	}
}

// fate is what is known of a row.
type fate uint8

const (
	fatePublished fate = iota
	fateUnpublished
	fateDoubtful
)

// fate says whether a row of an aggregate was handed on, as far as this run knows.
func (p *publisher) fate(f *cdclog.StoredEvent, began, remembered int64) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.items[f.ID] != nil, p.memory.has(f.ID), p.letters.has(f.ID):
		return fatePublished
	case f.Written > max(began, min(p.memory.horizon, remembered)):
		return fateUnpublished
	default:
		return fateDoubtful
	}
}

// begins notes that an unknown aggregate continues with a number, so that what is
// passed over is remembered.
func (p *publisher) begins(aggregate gocql.UUID, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.line(aggregate); !known {
		p.memory.keep(aggregate, line{first: next, next: next})
	}
}
