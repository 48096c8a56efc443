package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// OpenStatuses are those of letters that want something done.
var OpenStatuses = []Status{Pending, Parked, Processing, Failed, Manual}

// Tally counts the letters of statuses that died in the hours from since up to
// until; the zero time is no bound. It counts entries of lists, as Stats does.
func (s *Store) Tally(ctx context.Context, statuses []Status, since, until time.Time) (map[Status]int64, error) {
	type key struct {
		status Status
		bucket time.Time
	}
	var keys []key
	out := make(map[Status]int64, len(statuses))
	for _, st := range statuses {
		out[st] = 0
		hours, err := s.lists.hours(ctx, st, since, until)
		if err != nil {
			return nil, err
		}
		for _, h := range hours {
			keys = append(keys, key{st, h})
		}
	}
	sizes := make([]int64, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(statsQueries)
	for i, k := range keys {
		g.Go(func() error {
			qctx, cancel := context.WithTimeout(gctx, s.db.Timeout)
			defer cancel()
			if err := s.db.Select(qctx, s.lists.stmt.lookupSize, kindStatus, string(k.status), k.bucket).Scan(&sizes[i]); err != nil {
				return fmt.Errorf("count the %s dead letters of %s: %w", k.status, k.bucket.Format(time.RFC3339), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, k := range keys {
		out[k.status] += sizes[i]
	}
	return out, nil
}

// hours are the hours of which letters of a status may have died, newest first.
func (ls *lists) hours(ctx context.Context, st Status, since, until time.Time) ([]time.Time, error) {
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	if until.IsZero() {
		until = latest
	}
	ctx, cancel := context.WithTimeout(ctx, ls.db.Timeout)
	defer cancel()
	iter := ls.db.Select(ctx, ls.stmt.buckets, kindStatus, string(st), since.UTC().Truncate(time.Hour), until).Prefetch(0).Iter()
	var out []time.Time
	var h time.Time
	for iter.Scan(&h) {
		out = append(out, h)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read in which hours %s dead letters died: %w", st, err)
	}
	return out, nil
}

// Oldest is the letter of a status that died first, without its payload;
// ErrNotFound if none has the status.
func (s *Store) Oldest(ctx context.Context, st Status) (Letter, error) {
	hours, err := s.lists.hours(ctx, st, time.Time{}, time.Time{})
	if err != nil {
		return Letter{}, err
	}
	for _, h := range slices.Backward(hours) {
		l, err := s.oldestOf(ctx, st, h)
		if !errors.Is(err, ErrNotFound) {
			return l, err
		}
	}
	return Letter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}

// oldestOf is Oldest of an hour.
func (s *Store) oldestOf(ctx context.Context, st Status, hour time.Time) (Letter, error) {
	qctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	iter := s.db.Select(qctx, "SELECT event_id FROM "+s.db.Keyspace+".dead_letter_lookups WHERE kind = ? AND value = ? AND bucket = ?"+
		" ORDER BY first_failed_at ASC", kindStatus, string(st), hour).PageSize(maxLookup).Prefetch(0).Iter()
	var id gocql.UUID
	for more := true; more; {
		var ids []gocql.UUID
		for len(ids) < maxLookup {
			if more = iter.Scan(&id); !more {
				break
			}
			ids = append(ids, id)
		}
		if len(ids) == 0 {
			break
		}
		letters, err := s.readMany(ctx, ids)
		if err != nil {
			_ = iter.Close() // the caller is told why it stops
			return Letter{}, err
		}
		for _, id := range ids {
			if l, ok := letters[id]; ok && l.Status == st {
				_ = iter.Close() // nobody wants to know any more
				return l, nil
			}
		}
	}
	if err := iter.Close(); err != nil {
		return Letter{}, fmt.Errorf("read the oldest %s dead letter: %w", st, err)
	}
	return Letter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}
