package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// verifyLookups bounds the lookups of closed dead letters, which are single reads.
const verifyLookups = 10_000

// verifySkew is the maximum difference between the clocks of a relay and this process.
const verifySkew = time.Minute

// DeadLettersOf are the dead letters of a table, "keyspace.table". It implements
// verify.DeadLetters.
type DeadLettersOf struct {
	Store *dlq.Store
	Table string
}

// Read calls each with the dead letters of events that are in no topic.
func (d DeadLettersOf) Read(ctx context.Context, began time.Time, events []gocql.UUID, each func(verify.DeadLetter)) error {
	wanted := make(map[gocql.UUID]bool, len(events))
	for _, id := range events {
		wanted[id] = true
	}
	if err := d.Store.Chains(ctx, d.Table, func(e dlq.ChainEntry) error {
		if wanted[e.EventID] {
			delete(wanted, e.EventID)
			each(openDeadLetter(e.EventID, e.AggregateID, e.Status, e.ErrorClass))
		}
		return nil
	}); err != nil {
		return err
	}
	n := 0
	for _, id := range events {
		if !wanted[id] {
			continue
		}
		if n++; n > verifyLookups {
			return nil // with so many missing events, closed dead letters do not change the verdict
		}
		l, err := d.Store.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound), err == nil && l.Table != d.Table:
		case err != nil:
			return err
		case l.Status.Open(): // it was written concurrently
			each(openDeadLetter(id, l.AggregateID, l.Status, l.ErrorClass))
		default:
			if deadLetter, ok := ClosedDeadLetter(&l, began.Add(-verifySkew)); ok {
				each(deadLetter)
			}
		}
	}
	return nil
}

// aggregateFrom returns the aggregate of a dead letter, zero if the relay could not read it.
func aggregateFrom(id gocql.UUID, text string) outbox.ID {
	if a := outbox.IDFromText(text); a.UUID() != id {
		return a
	}
	return outbox.ID{}
}

func openDeadLetter(id gocql.UUID, aggregate string, s dlq.Status, class string) verify.DeadLetter {
	state := verify.DeadLetterOpen
	if s == dlq.Blocked {
		state = verify.DeadLetterBlocked
	}
	return verify.DeadLetter{Event: id, Aggregate: aggregateFrom(id, aggregate), State: state, Detail: fmt.Sprintf("dead letter, %s: %s", s, class)}
}

// ClosedLetter returns the closed dead letter of an event. It returns false if the event was
// published before since: then its record is missing.
func ClosedDeadLetter(l *dlq.DeadLetter, since time.Time) (verify.DeadLetter, bool) {
	if o := l.Outcome; o.Kind == dlq.OutcomeRedirected {
		return verify.DeadLetter{Event: l.EventID, Aggregate: aggregateFrom(l.EventID, l.AggregateID), State: verify.DeadLetterClosed, Detail: "dead letter, " + o.String()}, true
	}
	switch l.Outcome.Kind {
	case dlq.OutcomeDiscarded, dlq.OutcomeByHand:
		detail := fmt.Sprintf("dead letter, %s at %s", l.Outcome.Kind, l.ResolvedAt.UTC().Format(time.RFC3339))
		if l.Outcome.Note != "" {
			detail += ": " + cli.Clean(l.Outcome.Note, 120)
		}
		return verify.DeadLetter{Event: l.EventID, Aggregate: aggregateFrom(l.EventID, l.AggregateID), State: verify.DeadLetterClosed, Detail: detail}, true
	case dlq.OutcomeReplayed, dlq.OutcomeFound, dlq.OutcomeUnblocked:
		if !l.ResolvedAt.Before(since) {
			return verify.DeadLetter{Event: l.EventID, Aggregate: aggregateFrom(l.EventID, l.AggregateID), State: verify.DeadLetterLate}, true
		}
	case "":
		// Retention or a forced purge archived it before it was resolved: the event is in no
		// topic, and this is expected.
		detail := "dead letter, archived and never published"
		switch {
		case l.Archive != "":
			detail += fmt.Sprintf(": outbox dlq archive get %s", l.EventID)
		case !l.PurgedAt.IsZero():
			detail += fmt.Sprintf(": purged at %s", l.PurgedAt.UTC().Format(time.RFC3339))
		}
		return verify.DeadLetter{Event: l.EventID, Aggregate: aggregateFrom(l.EventID, l.AggregateID), State: verify.DeadLetterClosed, Detail: detail}, true
	}
	return verify.DeadLetter{}, false
}
