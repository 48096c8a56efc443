package publish

import (
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// deadLetters contains the open dead letters of the table.
type deadLetters struct {
	*chains.Set
	// begun contains the events for which a previous instance began to write a dead
	// letter (interrupted).
	begun map[gocql.UUID]struct{}
	// unstored contains dead letters that could not be stored so far.
	unstored map[gocql.UUID]UnstoredDeadLetter
	// stalled contains the dead letters that are due at a time because their partition was
	// stalled, with that time as chains.Ref.At.
	stalled map[gocql.UUID]int64
	// writing is the number of dead letters being written, replays that of running replays.
	writing, replays int
	// lastFailure is the failure time of the last dead letter without a sequence number.
	lastFailure time.Time
	// passed is the write time, in microseconds, up to which the sweep reader has read
	// the CDC log.
	passed int64
}

func newDeadLetters(cfg *Config) *deadLetters {
	return &deadLetters{Set: chains.New(cfg.Rules), unstored: make(map[gocql.UUID]UnstoredDeadLetter), stalled: make(map[gocql.UUID]int64)}
}

// failedAt is the time of a failure now of an event with this sequence number.
// FirstFailedAt orders unnumbered events, also after a restart.
func (d *deadLetters) failedAt(sequence int64, now time.Time) time.Time {
	now = now.UTC().Truncate(time.Millisecond)
	if sequence != 0 {
		return now
	}
	if !now.After(d.lastFailure) {
		now = d.lastFailure.Add(time.Millisecond)
	}
	d.lastFailure = now
	return now
}

// resumeStalled makes the dead letters of stalled partitions due.
func (d *deadLetters) resumeStalled() {
	for id, at := range d.stalled {
		d.Change(id, func(ref *chains.Ref) {
			if ref.At == at { // otherwise it was changed since
				ref.At = chains.AtOnce
			}
		})
	}
	clear(d.stalled)
}
