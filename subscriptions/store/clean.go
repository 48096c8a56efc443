package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ListDeleted returns the deleted incarnations whose messages are not removed yet.
func (s *Store) ListDeleted(ctx context.Context) ([]Deleted, error) {
	rows, err := s.rows(ctx)
	var out []Deleted
	for i := range rows {
		for _, in := range slices.Sorted(maps.Keys(rows[i].deleted)) {
			out = append(out, Deleted{in, rows[i].deleted[in].UTC()})
		}
	}
	return out, err
}

// Clean removes the messages of a deleted incarnation, and then the incarnation from
// Deleted. The caller has deleted its consumer group. Instances that have not yet stopped
// running the incarnation may store messages again, which are never removed: call Clean
// when all of them have read the list of subscriptions. After an error call it again.
func (s *Store) Clean(ctx context.Context, incarnation string) error {
	if err := s.clean(ctx, incarnation); err != nil {
		return fmt.Errorf("remove the messages of deleted subscription %s: %w", incarnation, err)
	}
	return nil
}

func (s *Store) clean(ctx context.Context, incarnation string) error {
	parts, err := s.Partitions(ctx, incarnation)
	if err != nil {
		return err
	}
	for _, p := range parts {
		// Former owners are fenced: without a row, too, their epoch is not the stored one.
		if _, err := s.ClaimPartition(ctx, p, "removed"); err != nil {
			return err
		}
		for _, stmt := range []string{s.stmt.dropAll, s.stmt.dropPartition} {
			err := s.until(ctx, func() error {
				return s.withTimeout(ctx, func(ctx context.Context) error { return s.query(ctx, stmt, p.args()...).Exec() })
			})
			if err != nil {
				return fmt.Errorf("partition %s: %w", p, err)
			}
		}
		s.forget(p)
	}
	return s.unmark(ctx, incarnation)
}

// Partitions returns the partitions of an incarnation that were ever claimed, by topic and
// number.
func (s *Store) Partitions(ctx context.Context, incarnation string) (out []Partition, err error) {
	err = s.until(ctx, func() error {
		out = nil
		return s.withTimeout(ctx, func(ctx context.Context) error {
			iter := s.query(ctx, s.stmt.partitions, incarnation).Iter()
			for p := (Partition{Subscription: incarnation}); iter.Scan(&p.Topic, &p.Number); {
				out = append(out, p)
			}
			return iter.Close()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list the partitions of subscription %s: %w", incarnation, err)
	}
	return out, nil
}

func (s *Store) forget(p Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.partitions, p)
}

// unmark removes an incarnation from the row of its name, and a row without a subscription
// that contains no other one.
func (s *Store) unmark(ctx context.Context, incarnation string) error {
	name, _, _ := strings.Cut(incarnation, ".")
	for budget := s.retry(ctx); ; {
		r, err := s.read(ctx, name)
		if err != nil {
			return err
		}
		if _, ok := r.deleted[incarnation]; !ok {
			return nil
		}
		applied := false
		if len(r.deleted) == 1 && !r.exists() {
			applied, err = s.swap(ctx, s.stmt.drop, name, r.Version)
		} else {
			applied, err = s.swap(ctx, s.stmt.unmark, []string{incarnation}, name, r.Version)
		}
		if applied && err == nil || permanent(err) {
			return err
		}
		if !budget.Pause() {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
