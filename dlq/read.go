package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"
)

// entryDest are the destinations of entryColumns.
func (l *Letter) entryDest() []any {
	return []any{
		&l.EventID, &l.Version, (*string)(&l.Status), &l.Table, &l.AggregateID, &l.AggregateType, &l.EventType, &l.Sequence, &l.CreatedAt,
		&l.DeliverAt, &l.WrittenAt, &l.Topic, &l.ErrorClass, &l.Attempts, &l.Replays, &l.FirstFailedAt, &l.LastFailedAt, &l.Strategy,
		&l.NextAttempt, &l.ClaimedBy, &l.ClaimedUntil, &l.Released, &l.Rule, &l.Waiting, &l.FailureKey, &l.FailureRepeats,
		&l.PurgedAt, &l.Archive, &l.ResolvedAt, &l.job, &l.EditedID,
	}
}

// dest are the destinations of entryColumns and moreColumns.
func (l *Letter) dest() []any {
	return append(l.entryDest(), &l.Payload, &l.ContentType, &l.Headers, &l.ErrorCode, &l.ErrorText, &l.ErrorChain, &l.Metadata, &l.Raw,
		(*string)(&l.Outcome.Kind), &l.Outcome.Topic, &l.Outcome.Partition, &l.Outcome.Offset, &l.Outcome.Note)
}

// Entry is the letter without what only publishing needs.
func (l *Letter) Entry() ChainEntry {
	return ChainEntry{
		EventID: l.EventID, AggregateID: l.AggregateID, AggregateType: l.AggregateType, EventType: l.EventType, Sequence: l.Sequence,
		WrittenAt: l.WrittenAt, Topic: l.Topic, Status: l.Status, Version: l.Version, Released: l.Released, ErrorClass: l.ErrorClass,
		Attempts: l.Attempts, Replays: l.Replays, CreatedAt: l.CreatedAt, DeliverAt: l.DeliverAt, FirstFailedAt: l.FirstFailedAt,
		NextAttempt: l.NextAttempt, Strategy: l.Strategy, Rule: l.Rule, FailureKey: l.FailureKey, ClaimedBy: l.ClaimedBy, ClaimedUntil: l.ClaimedUntil,
	}
}

// Read returns the letter of an event; ErrNotFound if it has none.
func (s *Store) Read(ctx context.Context, event gocql.UUID) (Letter, error) {
	l, err := s.read(ctx, event, s.stmt.letter, (*Letter).dest, s.db.Consistency)
	if err == nil {
		err = s.readEdit(ctx, &l)
	}
	if err != nil {
		return Letter{}, err
	}
	return l, nil
}

// read reads a letter by one of the statements. At the serial consistency it
// first completes a change that was decided and left undone.
func (s *Store) read(ctx context.Context, event gocql.UUID, stmt string, dest func(*Letter) []any, cons gocql.Consistency) (Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var l Letter
	err := s.db.Select(ctx, stmt, event).Consistency(cons).Scan(dest(&l)...)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return Letter{}, fmt.Errorf("event %s: %w", event, ErrNotFound)
	case err != nil:
		return Letter{}, fmt.Errorf("read dead letter %s: %w", event, err)
	}
	return l, nil
}

// readMany reads letters without their payloads, by event id; those that are
// not there are missing.
func (s *Store) readMany(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	out := make(map[gocql.UUID]Letter, len(events))
	iter := s.db.Select(ctx, s.stmt.entries, events).Iter()
	for {
		var l Letter
		if !iter.Scan(l.entryDest()...) {
			break
		}
		out[l.EventID] = l
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read %d dead letters: %w", len(events), err)
	}
	return out, nil
}
