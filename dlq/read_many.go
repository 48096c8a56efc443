package dlq

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gocql/gocql"
)

// ReadMany returns the letters of events, without payload, headers and error
// texts, by event id; those that are not there are missing.
func (s *Store) ReadMany(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]Letter, error) {
	out := make(map[gocql.UUID]Letter, len(events))
	for some := range slices.Chunk(events, maxLookup) {
		letters, err := s.readMany(ctx, some)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, letters)
	}
	return out, nil
}

// ErrorText is the last error of a letter.
type ErrorText struct{ Code, Text string }

// ErrorTexts returns the last errors of the letters of events; those that are not
// there are missing.
func (s *Store) ErrorTexts(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]ErrorText, error) {
	out := make(map[gocql.UUID]ErrorText, len(events))
	for some := range slices.Chunk(events, maxLookup) {
		if err := s.errorTexts(ctx, some, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) errorTexts(ctx context.Context, events []gocql.UUID, out map[gocql.UUID]ErrorText) error {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	iter := s.db.Select(ctx, "SELECT event_id, error_code, error_text FROM "+s.stmt.letters+" WHERE event_id IN ?", events).Iter()
	var id gocql.UUID
	var e ErrorText
	for iter.Scan(&id, &e.Code, &e.Text) {
		out[id] = e
		e = ErrorText{}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the errors of %d dead letters: %w", len(events), err)
	}
	return nil
}
