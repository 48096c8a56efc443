package relay

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// loadSettled notes the dead letters that were settled and whose rows the log, or
// a scan of the outbox table, may show again: what an operator has discarded is
// in no topic, and must not get there.
//
// An event becomes a dead letter after it was written, so only those are of
// interest that died after the oldest row that may come; all, if since is zero.
func (r *Relay) loadSettled(ctx context.Context, p *publisher, since time.Time) error {
	if !p.letters.on() {
		return nil
	}
	if !since.IsZero() {
		since = since.Add(-max(r.cfg.ReadBackMargin, DefaultReadBackMargin)) // clocks differ
	}
	return r.untilRead(ctx, "cannot read the dead letters that were settled; nothing is published before that", func() error {
		return r.trySettled(ctx, p, since)
	})
}

func (r *Relay) trySettled(ctx context.Context, p *publisher, since time.Time) error {
	most, n := max(r.cfg.MaxRememberedEvents/8, 1), 0
	filter := dlq.Filter{Status: []dlq.Status{dlq.Resolved, dlq.Archived}, Since: since}
	return p.letters.store.List(ctx, filter, func(l *dlq.DeadLetter) error { // the newest first
		if l.Table != p.letters.table || !r.own.HasText(l.AggregateID) {
			return nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.memory.has(l.EventID) {
			return nil // it was read back
		}
		if n++; n > most {
			r.log.Warn("more dead letters were settled than are remembered; the oldest may be published when their rows come again", "remembered", most)
			return dlq.ErrStop
		}
		p.memory.addUnsent(l.EventID, l.WrittenAt)
		return nil
	})
}
