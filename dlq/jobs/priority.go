package jobs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// ErrTooMany reports that a filter selects more dead letters than are sorted by
// priority.
var ErrTooMany = fmt.Errorf("the filter selects more than %d dead letters, which are sorted in memory: narrow it, or replay without priority", MaxIDs)

// ByPriority returns the dead letters of a specification in the order in which a job
// with Spec.ByPriority changes them: higher priorities first, of equal ones the oldest
// first failure first. Limit applies to that order. Ids without a dead letter are
// absent. The error has ErrTooMany in its chain if the filter selects more than
// MaxIDs.
func (s *Store) ByPriority(ctx context.Context, spec *Spec) ([]dlq.DeadLetter, error) {
	var out []dlq.DeadLetter
	if len(spec.IDs) > 0 {
		found, err := s.dead.ReadMany(ctx, spec.IDs)
		if err != nil {
			return nil, err
		}
		for _, l := range found {
			out = append(out, l)
		}
	} else {
		if err := s.dead.List(ctx, spec.withDefaults(s.db.Millis()).Filter, func(l *dlq.DeadLetter) error {
			if len(out) == s.sorted {
				return fmt.Errorf("by priority: %w", ErrTooMany)
			}
			out = append(out, *l)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b dlq.DeadLetter) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.FirstFailedAt.Compare(b.FirstFailedAt), bytes.Compare(a.EventID[:], b.EventID[:]))
	})
	if spec.Limit > 0 {
		out = out[:min(len(out), spec.Limit)]
	}
	return out, nil
}

// sortByPriority replaces the filter of a specification by priority by the ids of its dead
// letters in order. Ids without a dead letter are last; the job reports them.
func (s *Store) sortByPriority(ctx context.Context, spec Spec) (Spec, error) {
	deadLetters, err := s.ByPriority(ctx, &spec)
	if err != nil || len(deadLetters) == 0 {
		return spec, err
	}
	ids := make([]gocql.UUID, 0, max(len(deadLetters), len(spec.IDs)))
	for i := range deadLetters {
		ids = append(ids, deadLetters[i].EventID)
	}
	spec.Filter, spec.IDs = dlq.Filter{}, unique(append(ids, spec.IDs...))
	return spec, nil
}
