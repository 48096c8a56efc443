package publish

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// death is the reason why an event becomes a dead letter.
type death struct {
	class string
	err   error
}

// letters contains the open dead letters of the table. Publisher.mu guards it.
type letters struct {
	*chains.Set
	store *dlq.Store
	table string
	// begun contains the events for which a previous instance began to write a dead
	// letter (interrupted).
	begun map[gocql.UUID]struct{}
	// writing is the number of dead letters being written, underWay that of running replays.
	writing, underWay int
	// died is the failure time of the last dead letter without a sequence number.
	died time.Time
	// passed is the write time, in microseconds, up to which the sweep reader has read
	// the CDC log.
	passed int64
}

func newLetters(cfg *Config) *letters {
	return &letters{Set: chains.New(cfg.Rules), store: cfg.DeadLetters, table: cfg.TableKeyspace + "." + cfg.Table}
}

// on reports whether there is a table for dead letters.
func (d *letters) on() bool { return d.store != nil }

// IsDeadLetter reports whether the event is an open dead letter.
func (p *Publisher) IsDeadLetter(event gocql.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.Has(event)
}

// WaitingUnder returns the number of dead letters that wait under a strategy. p may be
// nil.
func (p *Publisher) WaitingUnder(strategy string) int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.letters.Waiting(strategy)
}

// DeadLetter reads the dead letter of an event of the table. It returns nil without an
// error if there is none.
func (p *Publisher) DeadLetter(ctx context.Context, event gocql.UUID) (*dlq.DeadLetter, error) {
	if !p.letters.on() {
		return nil, nil
	}
	l, err := p.letters.store.Read(ctx, event)
	if errors.Is(err, dlq.ErrNotFound) || err == nil && l.Table != p.letters.table {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}
