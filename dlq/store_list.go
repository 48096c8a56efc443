package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// List calls each for the letters that f means, as they stand, without payload
// and headers; those that died last come first. An error of each ends it.
//
// Letters that change meanwhile may be missing, or shown as they were. The cost
// is that of the entries on the shortest list that all criteria share, not of
// the table.
func (s *Store) List(ctx context.Context, f Filter, each func(*DeadLetter) error) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	r := s.lists.reader(&f)
	defer r.close()
	limit := latest
	if !f.After.FirstFailedAt.IsZero() {
		limit = f.After.FirstFailedAt
	}
	l := listing{s: s, f: &f, each: each, size: firstLookup}
	for {
		g, ok, err := r.next(ctx, limit)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		limit = g.at
		if err := l.add(ctx, g); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	if err := l.flush(ctx); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// Chains calls f for every open letter of an outbox table, "keyspace.table", as
// it stands, those of one aggregate together and in the order of the events: by
// number, and in tables without numbers by write time. Aggregates come in no
// order. f is called from one goroutine at a time; an error of it ends Chains.
//
// A letter for which Bury returned before Chains began is not missed, whatever
// crashed since.
func (s *Store) Chains(ctx context.Context, table string, f func(ChainEntry) error) error {
	return s.ChainsAndBegun(ctx, table, f, func(ChainEntry) {})
}

// ChainsAndBegun is Chains, and calls begun, from the goroutine of f, for each event
// of which a letter is listed and not stored: whoever began to bury it died before
// that, or may still store it at any time. Of such an entry the event, its aggregate,
// its number and its write time are known.
//
// A letter is on the lists before Bury asks the fence (WithFence) and stores it. So
// one that passed the fence before ChainsAndBegun was called, and was not stored yet,
// is among those begun.
func (s *Store) ChainsAndBegun(ctx context.Context, table string, f func(ChainEntry) error, begun func(ChainEntry)) error {
	r := chainReader{s, table}
	g, gctx := errgroup.WithContext(ctx)
	next := make(chan int, chainBuckets)
	for bucket := range chainBuckets {
		next <- bucket
	}
	close(next)
	found := make(chan []ChainEntry) // of a bucket each
	var got atomic.Int64             // when a bucket was last read, so that reads which fail now and then do not make all begin anew
	got.Store(time.Now().UnixNano())
	for range chainReaders {
		g.Go(func() error {
			for bucket := range next {
				entries, err := r.bucket(gctx, bucket)
				for err != nil {
					if permanent(err) || gctx.Err() != nil || time.Since(time.Unix(0, got.Load())) > s.db.Budget {
						return err
					}
					s.db.Retry(gctx).Pause()
					entries, err = r.bucket(gctx, bucket)
				}
				got.Store(time.Now().UnixNano())
				select {
				case found <- entries:
				case <-gctx.Done():
					return gctx.Err()
				}
			}
			return nil
		})
	}
	g.Go(func() error { // f is called from here alone
		for range chainBuckets {
			select {
			case entries := <-found:
				for _, e := range entries {
					if e.begun() {
						begun(e)
					} else if err := f(e); err != nil {
						return err
					}
				}
			case <-gctx.Done():
				return gctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// Chain is Chains for one aggregate.
func (s *Store) Chain(ctx context.Context, table, aggregate string) ([]ChainEntry, error) {
	var out []ChainEntry
	err := chainReader{s, table}.walk(ctx, s.db.Select(ctx, s.stmt.chain, table, chainBucket(aggregate), aggregate), func(e ChainEntry) error {
		if !e.begun() {
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

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

// Oldest is the letter of a status that died first, without its payload;
// ErrNotFound if none has the status.
func (s *Store) Oldest(ctx context.Context, st Status) (DeadLetter, error) {
	hours, err := s.lists.hours(ctx, st, time.Time{}, time.Time{})
	if err != nil {
		return DeadLetter{}, err
	}
	for _, h := range slices.Backward(hours) {
		l, err := s.oldestOf(ctx, st, h)
		if !errors.Is(err, ErrNotFound) {
			return l, err
		}
	}
	return DeadLetter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}

// oldestOf is Oldest of an hour.
func (s *Store) oldestOf(ctx context.Context, st Status, hour time.Time) (DeadLetter, error) {
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
			return DeadLetter{}, err
		}
		for _, id := range ids {
			if l, ok := letters[id]; ok && l.Status == st {
				_ = iter.Close() // nobody wants to know any more
				return l, nil
			}
		}
	}
	if err := iter.Close(); err != nil {
		return DeadLetter{}, fmt.Errorf("read the oldest %s dead letter: %w", st, err)
	}
	return DeadLetter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}

// Tidy takes hours off the lists in which no letter is left, and returns how many
// it found. Without it, whoever counts or lists letters would ask for every hour in which one
// ever died. It costs a query for each hour of each list, 200 per second at most.
//
// Any number of processes may do it, beside others that bury and change letters:
// a removal is written with a time that is announceKept before the hour was found
// empty, so an announcement that is younger stays.
func (s *Store) Tidy(ctx context.Context) (gone int, err error) { return s.lists.tidy(ctx) }
