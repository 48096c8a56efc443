package publish

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Predecessors finds out which rows of an aggregate are still to be published before
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
type Predecessors struct {
	Publisher *Publisher
	Lookup    cdclog.Lookup
	Quick     bool // a proof that takes long is left to the sweep
}

// ErrLeft is returned where the tail reader cannot find out immediately whether earlier events
// are published: the sweep reader decides.
var ErrLeft = errors.New("left to the sweep reader")

// prover finds out whether an event is published that the dedup index does not have. With
// quick set it returns an error where that takes long.
type prover interface {
	Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (published bool, err error)
}

// Prove asks the prover; without one the event counts as published.
func (p *Publisher) Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (bool, error) {
	if p.proofs == nil {
		return true, nil
	}
	return p.proofs.Prove(ctx, f, quick)
}

// SetProver sets the prover, before events are offered.
func (p *Publisher) SetProver(to prover) { p.proofs = to }

// EarlierRows are an aggregate's rows before an event.
type EarlierRows struct {
	// Published is the number of the last row that is published; 0 without one. All
	// rows behind it are not.
	Published int64
	// Missed is the first row that is not published though a later one is.
	Missed int64
	// Lowest and highest are the first and the last row; 0 without rows.
	Lowest, highest int64
}

// Late says whether rows are to be published behind later ones.
func (r *EarlierRows) Late() bool { return r.Missed > 0 && r.Missed < r.Published }

// Find reads the rows of an aggregate below a number. began is from when this run reads
// its stream, in microseconds; no id of a row written after remembered is forgotten.
func (d *Predecessors) Find(ctx context.Context, of *outbox.Event, to, began, remembered int64) (out EarlierRows, err error) {
	for {
		var doubt *cdclog.StoredEvent
		lowest, highest := int64(0), int64(0)
		if err := d.Lookup(ctx, of, 1, to, func(f cdclog.StoredEvent) error {
			if lowest == 0 {
				lowest = f.Sequence
			}
			highest = f.Sequence
			switch d.Publisher.Fate(&f, began, remembered) {
			case FateUnpublished:
				if out.Missed == 0 || f.Sequence < out.Missed {
					out.Missed = f.Sequence
				}
			case fatePublished:
				out.Published, doubt = f.Sequence, nil
			case fateDoubtful:
				f.Payload = nil
				doubt = &f
			}
			return nil
		}); err != nil {
			return out, err
		}
		if lowest > 0 && out.Lowest == 0 {
			out.Lowest, out.highest = lowest, highest
		}
		if doubt == nil {
			return out, nil
		}
		published, err := d.Publisher.Prove(ctx, doubt, d.Quick)
		if err != nil {
			return out, err
		}
		if published {
			out.Published = doubt.Sequence
			return out, nil
		}
		to = doubt.Sequence
	}
}

// fate is what is known of a row.
type fate uint8

const (
	fatePublished fate = iota
	FateUnpublished
	fateDoubtful
)

// Fate says whether a row of an aggregate was handed on, as far as this run knows.
func (p *Publisher) Fate(f *cdclog.StoredEvent, began, remembered int64) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.items[f.ID] != nil, p.memory.has(f.ID), p.letters.has(f.ID):
		return fatePublished
	case f.Written > max(began, min(p.memory.horizon, remembered)):
		return FateUnpublished
	default:
		return fateDoubtful
	}
}

// Begins notes that an unknown aggregate continues with a number, so that what is
// passed over is remembered.
func (p *Publisher) Begins(aggregate gocql.UUID, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.line(aggregate); !known {
		p.memory.keep(aggregate, line{first: next, next: next})
	}
}
