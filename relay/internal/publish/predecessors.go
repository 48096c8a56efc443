package publish

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Predecessors finds the rows of an aggregate that must be published before an event,
// where the aggregate is unknown: after a start, or after its line was evicted. The tail
// reader and the sweep reader share the rule.
//
// The position of the sweep proves nothing: a row may become visible after the sweep has
// passed it.
//
//   - A row whose id is in the dedup index is published, or will be.
//   - A row that was written after this run began to read its stream, and after every
//     evicted id, would be in the dedup index. It is not published.
//   - Any other row is doubtful. Rows are published in the order of their numbers, so
//     the last doubtful row decides for the earlier ones.
//
// The topics prove whether it is published (proofs).
type Predecessors struct {
	Publisher *Publisher
	Lookup    cdclog.Lookup
	Quick     bool // leave a slow proof to the sweep reader
}

// ErrLeft means that the tail reader cannot prove quickly whether earlier events are
// published: the sweep reader decides.
var ErrLeft = errors.New("left to the sweep reader")

// prover finds out whether an event that is not in the dedup index is published. With
// quick set it returns an error instead of a slow proof.
type prover interface {
	Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (published bool, err error)
}

// Prove calls the prover; without one the event counts as published.
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
	// Published is the number of the last published row, 0 without one. No later row
	// is published.
	Published int64
	// Missed is the number of the first row that is not published, 0 without one.
	Missed int64
	// Lowest and highest are the numbers of the first and the last row, 0 without rows.
	Lowest, highest int64
}

// Late reports whether a row must be published after a later one.
func (r *EarlierRows) Late() bool { return r.Missed > 0 && r.Missed < r.Published }

// Find reads the rows of an aggregate below the number to. began is the time from which
// this run reads its stream, in microseconds; no id of a row written after remembered
// was evicted.
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

// fate is the known state of a row.
type fate uint8

const (
	fatePublished fate = iota
	FateUnpublished
	fateDoubtful
)

// Fate returns whether a row of an aggregate was accepted, as far as this run knows.
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

// Begins sets the next number of an unknown aggregate, so that skipped numbers are
// recorded.
func (p *Publisher) Begins(aggregate gocql.UUID, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.line(aggregate); !known {
		p.memory.keep(aggregate, line{first: next, next: next})
	}
}
