package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
)

// errNotSearched cancels a replay because the topics could not be searched for the event.
var errNotSearched = errors.New("failed to search the topics for the event")

// reopenedDeadLetters are the dead letters that a restore of the database may have opened again: those that
// were open at the start and are older than the current epoch. One that was replayed after the backup
// is in its topic, longer ago than a start reads back. The topics are searched once, before the
// first of them is replayed. It is safe for concurrent use once it is set.
type reopenedDeadLetters struct {
	numbers map[gocql.UUID]int64 // by event id
	since   time.Time            // when the first of them failed

	mu     sync.Mutex
	search *recordSearch // in progress or successful
}

// recordSearch is a search for the records of events. Its result is set before done is closed.
type recordSearch struct {
	done  chan struct{}
	found map[gocql.UUID]struct{}
	err   error
}

// recordFinder is a prover that finds the events, by id with their numbers, that the relay's topics
// contain since a time. *readback.Proofs implements it.
type recordFinder interface {
	FindRecords(ctx context.Context, events map[gocql.UUID]int64, since time.Time) (map[gocql.UUID]struct{}, error)
}

// of sets the dead letters from those that are open at the start, before replays begin; restored is the
// time before which they may be those of a backup, zero for none.
func (o *reopenedDeadLetters) of(open []dlq.ChainEntry, restored time.Time) {
	for i := range open {
		e := &open[i]
		if !e.FirstFailedAt.Before(restored) {
			continue
		}
		if o.numbers == nil {
			o.numbers = make(map[gocql.UUID]int64)
		}
		o.numbers[e.EventID] = e.Sequence
		if o.since.IsZero() || e.FirstFailedAt.Before(o.since) {
			o.since = e.FirstFailedAt
		}
	}
}

// has reports whether the dead letter is one of them.
func (o *reopenedDeadLetters) has(id gocql.UUID) bool {
	_, has := o.numbers[id]
	return has
}

// isInTopic reports whether a record of the event was found. Concurrent callers wait for one search.
func (o *reopenedDeadLetters) isInTopic(ctx context.Context, topics earlier.Prover, id gocql.UUID) (bool, error) {
	finder, ok := topics.(recordFinder)
	if !ok {
		return false, nil
	}
	o.mu.Lock()
	s := o.search
	begins := s == nil
	if begins {
		s = &recordSearch{done: make(chan struct{})}
		o.search = s
	}
	o.mu.Unlock()
	if begins {
		if s.found, s.err = finder.FindRecords(ctx, o.numbers, o.since); s.err != nil {
			o.mu.Lock()
			o.search = nil
			o.mu.Unlock()
		}
		close(s.done)
	}
	<-s.done
	if s.err != nil {
		return false, fmt.Errorf("%w: %w", errNotSearched, s.err)
	}
	_, found := s.found[id]
	return found, nil
}
