package publish

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// ErrLeft means that the tail reader cannot prove quickly whether earlier events are
// published: the sweep reader decides.
var ErrLeft = errors.New("left to the sweep reader")

// prover finds out whether an event that is not in the dedup index is published. With
// quick set it returns an error instead of a slow proof.
type prover interface {
	Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (published bool, err error)
	Find(ctx context.Context, f *cdclog.StoredEvent) (found bool, err error)
}

// Prove calls the prover; without one the event counts as published.
func (p *Publisher) Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (bool, error) {
	if p.proofs == nil {
		return true, nil
	}
	return p.proofs.Prove(ctx, f, quick)
}

// Find is Prove by a read near the time of the event's creation alone: false proves nothing.
func (p *Publisher) Find(ctx context.Context, f *cdclog.StoredEvent) (bool, error) {
	if p.proofs == nil {
		return false, nil
	}
	return p.proofs.Find(ctx, f)
}

// SetProver sets the prover, before events are offered.
func (p *Publisher) SetProver(to prover) { p.proofs = to }

// Fate is the known state of a row.
type Fate uint8

const (
	// FatePublished: the row's event is published, a dead letter, or in progress.
	FatePublished Fate = iota
	// FateUnpublished: no reader has offered the event.
	FateUnpublished
	// FateDoubtful: an earlier run may have published the event.
	FateDoubtful
)

// Fate returns whether a row of an aggregate was accepted, as far as this run knows.
func (p *Publisher) Fate(f *cdclog.StoredEvent, began, remembered int64) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.items[f.ID] != nil, p.dedup.Has(f.ID), p.letters.Has(f.ID):
		return FatePublished
	case f.Written > max(began, min(p.dedup.Horizon(), remembered)):
		return FateUnpublished
	default:
		return FateDoubtful
	}
}

// Begins sets the next number of an unknown aggregate, so that skipped numbers are
// recorded.
func (p *Publisher) Begins(aggregate gocql.UUID, next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.line(aggregate); !known {
		p.dedup.Keep(aggregate, dedup.Line{First: next, Next: next})
	}
}
