package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// Hold is what keeps letters of a table from being replayed now, as the relay
// sees it: a condition that does not hold, or a canary that died again.
type Hold struct {
	// Rule is that of the letters, and FailureKey theirs, empty for all of the rule.
	Rule, FailureKey string
	// Reason says what keeps them, in plain words.
	Reason string
	// Since is when it began, and Until when it ends by itself; zero if time alone
	// does not decide.
	Since, Until time.Time
}

// of says that the hold is one of the letter.
func (h *Hold) of(l *Letter) bool {
	return h.Rule == l.Rule && (h.FailureKey == "" || h.FailureKey == l.FailureKey)
}

// Holds are the holds of an outbox table, "keyspace.table", written in the last
// three minutes, which is the rows' time to live. A relay that is gone leaves its
// own for that long.
func (s *Store) Holds(ctx context.Context, table string) ([]Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var out []Hold
	iter := s.db.Select(ctx, s.stmt.holds, table).Prefetch(0).Iter()
	for {
		var h Hold
		if !iter.Scan(&h.Rule, &h.FailureKey, &h.Reason, &h.Since, &h.Until) {
			break
		}
		out = append(out, h)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read what holds back the dead letters of %s: %w", table, err)
	}
	return out, nil
}

// SetHold writes a hold, or writes it again.
func (s *Store) SetHold(ctx context.Context, table string, h Hold) error {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	err := s.db.Query(ctx, s.stmt.holdAdd, table, h.Rule, h.FailureKey, h.Reason, db.NullTime(h.Since), db.NullTime(h.Until)).Idempotent(true).Exec()
	if err != nil {
		return fmt.Errorf("note what holds back the dead letters of %s: %w", table, err)
	}
	return nil
}

// DropHold removes a hold that is over.
func (s *Store) DropHold(ctx context.Context, table string, h Hold) error {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	if err := s.db.Query(ctx, s.stmt.holdDrop, table, h.Rule, h.FailureKey).Idempotent(true).Exec(); err != nil {
		return fmt.Errorf("note that nothing holds back the dead letters of %s: %w", table, err)
	}
	return nil
}
