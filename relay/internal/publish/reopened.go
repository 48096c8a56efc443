package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/singleflight"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// errNotSearched cancels a replay because the topics could not be searched for the event.
var errNotSearched = errors.New("failed to search the topics for the event")

// reopenedDeadLetters are the dead letters that a restore of the database may have opened again: dead
// letters that were open at the start and are older than the current epoch. One that was replayed after the
// backup is in its topic, longer ago than a start reads back. The topics are searched once, before the
// first of them is replayed. It is safe for concurrent use once it is set.
type reopenedDeadLetters struct {
	numbers map[gocql.UUID]int64 // by event id
	since   time.Time            // when the first of them failed

	search singleflight.Group
	found  map[gocql.UUID]struct{} // set by a search, nil before
}

// of sets the dead letters from the ones open at the start, before replays begin; restored is the
// time before which they may come from a backup, zero for none.
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
func (o *reopenedDeadLetters) isInTopic(ctx context.Context, topics Prover, id gocql.UUID) (bool, error) {
	if topics == nil {
		return false, nil
	}
	_, err, _ := o.search.Do("", func() (_ any, err error) {
		if o.found == nil {
			o.found, err = topics.FindRecords(ctx, o.numbers, o.since)
		}
		return nil, err
	})
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNotSearched, err)
	}
	_, found := o.found[id]
	return found, nil
}
