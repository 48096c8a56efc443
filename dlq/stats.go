package dlq

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Stats are how many letters there are.
type Stats struct {
	// ByStatus counts all letters.
	ByStatus map[Status]int64
	// OpenByClass and OpenByType count open letters by error class and event type.
	OpenByClass, OpenByType map[string]int64
	// Open is the sum of open letters.
	Open int64
	// Oldest is when the open letter died that waits longest; zero without any.
	Oldest time.Time
}

// statsQueries is how many queries Stats has under way at once.
const statsQueries = 8

// Stats counts letters. It counts the entries of lists, an hour at a time, and
// reads no letter, so it is exact but for letters that change meanwhile and for
// entries that a crash left, which count until somebody lists them.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	out := Stats{ByStatus: make(map[Status]int64)}
	for _, st := range Statuses {
		out.ByStatus[st] = 0
	}
	byStatus, oldest, err := s.lists.count(ctx, kindStatus, func(value string) bool { return Status(value).Open() })
	if err != nil {
		return Stats{}, err
	}
	for value, n := range byStatus {
		st := Status(value)
		out.ByStatus[st] += n
		if st.Open() {
			out.Open += n
		}
	}
	out.Oldest = oldest
	if out.OpenByClass, _, err = s.lists.count(ctx, kindOpenClass, nil); err != nil {
		return Stats{}, err
	}
	if out.OpenByType, _, err = s.lists.count(ctx, kindOpenType, nil); err != nil {
		return Stats{}, err
	}
	return out, nil
}

// count counts the entries of all shelves of a kind by value, and returns when
// the first letter died of those values for which of is true.
func (ls *lists) count(ctx context.Context, kind string, of func(value string) bool) (map[string]int64, time.Time, error) {
	keys, err := ls.announcedBuckets(ctx, kind)
	if err != nil {
		return nil, time.Time{}, err
	}
	sizes := make([]int64, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(statsQueries)
	for i, k := range keys {
		g.Go(func() error {
			if err := ls.db.Select(gctx, ls.stmt.lookupSize, kind, k.value, time.Unix(k.bucket, 0)).Scan(&sizes[i]); err != nil {
				return fmt.Errorf("count the list of %s %s: %w", kind, k.value, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, time.Time{}, err
	}
	counts, first := make(map[string]int64), make(map[string]time.Time)
	for i, k := range keys {
		if sizes[i] == 0 {
			continue
		}
		counts[k.value] += sizes[i]
		if of != nil && of(k.value) && (first[k.value].IsZero() || time.Unix(k.bucket, 0).Before(first[k.value])) {
			first[k.value] = time.Unix(k.bucket, 0)
		}
	}
	var oldest time.Time
	for value, bucket := range first {
		at, ok, err := ls.firstOf(ctx, bucketKey{shelf{kind, value}, bucket.Unix()})
		if err != nil {
			return nil, time.Time{}, err
		}
		if !ok {
			continue // it moved on just now
		}
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return counts, oldest, nil
}
