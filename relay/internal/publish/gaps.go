package publish

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Missing returns how many of the last numbers of an aggregate are missing.
func (p *Publisher) Missing(aggregate gocql.UUID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, _ := p.line(aggregate)
	return p.dedup.Missing(aggregate, l.Next)
}

// FindGaps queries the skipped numbers of an aggregate if a lookup is due before event
// seq, and offers the events that became visible since. A lookup is one query. The caller
// must have claimed the aggregate.
func (p *Publisher) FindGaps(ctx context.Context, find cdclog.Lookup, of *outbox.Event, seq int64) error {
	p.mu.Lock()
	due := p.dedup.GapsDue(of.AggregateID, seq)
	var from, to int64
	if due {
		from, to = p.dedup.GapRange(of.AggregateID)
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	err := find(ctx, of, from, to, func(f cdclog.StoredEvent) error {
		p.mu.Lock()
		missed := p.dedup.IsGap(of.AggregateID, f.Sequence)
		p.mu.Unlock()
		if !missed {
			return nil
		}
		if err := p.Submit(ctx, f, ByKey, nil); err != nil {
			return &HandoverError{err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dedup.LookedUp(of.AggregateID, seq)
	return nil
}

// HandoverError is the error of offering an event that a lookup returned, as opposed to
// an error of the lookup.
type HandoverError struct{ Err error }

// Error returns the text of the wrapped error.
func (h *HandoverError) Error() string { return h.Err.Error() }

// Unwrap returns the wrapped error.
func (h *HandoverError) Unwrap() error { return h.Err }
