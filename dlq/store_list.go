package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// List calls each for the dead letters that match f, without payload and headers, the
// latest first failures first. An error of each ends the listing.
//
// Dead letters that change during the listing may be missing or outdated. The cost is
// that of the entries in the shortest list that all criteria share, not of the table.
func (s *Store) List(ctx context.Context, f Filter, each func(*DeadLetter) error) error {
	return s.list(ctx, listPace, listing{s: s, f: &f, each: each, size: firstLookup, most: maxLookup})
}

// ListFirst returns the first n dead letters of List, with the codes and texts of their errors, and
// whether there are more. It is for a caller who waits for them: what does not depend on each other is
// read concurrently.
func (s *Store) ListFirst(ctx context.Context, f Filter, n int) (found []DeadLetter, more bool, err error) {
	size := n + 1
	if f.Text != "" || f.ErrorCode != "" || f.Outcome != "" || f.MinPriority != nil {
		size *= perMatch
	}
	err = s.list(ctx, newPace(n+1), listing{s: s, f: &f, size: size, most: size, texts: true, each: func(l *DeadLetter) error {
		if more = len(found) == n; more {
			return ErrStop
		}
		found = append(found, *l)
		return nil
	}})
	return found, more, err
}

// list calls the function of a listing, of which it reads the lists at a pace.
func (s *Store) list(ctx context.Context, p pace, l listing) error {
	f := l.f
	if err := f.Validate(); err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	l.texts = l.texts || f.Text != "" || f.ErrorCode != ""
	r := s.lists.reader(f, p)
	defer r.close()
	limit := latest
	if !f.After.FirstFailedAt.IsZero() {
		limit = f.After.FirstFailedAt
	}
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

// Chains calls f for every open dead letter of an outbox table, "keyspace.table". The
// entries of one aggregate are consecutive and in the order of the events: by sequence
// number, and in tables without numbers by write time. The order of aggregates is
// undefined. f is called from one goroutine at a time; its error ends Chains.
//
// No dead letter is missed for which Write returned before Chains began, whatever
// crashed since.
func (s *Store) Chains(ctx context.Context, table string, f func(ChainEntry) error) error {
	return s.ChainsAndBegun(ctx, table, f, func(ChainEntry) {})
}

// AllChains is Chains for all tables, of outboxes and subscriptions, and for a caller who waits: it retries
// nothing, and reads the first page of each bucket concurrently, but the others of large tables as few at
// a time as Chains does. It reads at most that many entries, and reports whether there are more. The dead
// letters of one table and aggregate are consecutive.
func (s *Store) AllChains(ctx context.Context, most int, f func(table string, e ChainEntry)) (more bool, err error) {
	hours, err := s.lists.announcedBuckets(ctx, kindOpenTable)
	if err != nil {
		return false, err
	}
	tables := make(map[string]bool)
	for _, h := range hours {
		tables[h.value] = true
	}
	return s.firstChains(ctx, slices.Sorted(maps.Keys(tables)), most, f)
}

// FirstChains is AllChains for one table.
func (s *Store) FirstChains(ctx context.Context, table string, most int, f func(ChainEntry)) (more bool, err error) {
	return s.firstChains(ctx, []string{table}, most, func(_ string, e ChainEntry) { f(e) })
}

func (s *Store) firstChains(ctx context.Context, tables []string, most int, f func(table string, e ChainEntry)) (more bool, err error) {
	bound := &chainBound{later: semaphore.NewWeighted(chainReaders)}
	bound.left.Store(int64(most))
	err = s.eachBucket(ctx, manyReads, tables, func(ctx context.Context, table string, bucket int) ([]ChainEntry, error) {
		return chainReader{s, table, boundedPage, bound}.bucket(ctx, bucket)
	}, func(table string, e ChainEntry) error {
		if !e.begun() {
			f(table, e)
		}
		return nil
	})
	return bound.left.Load() < 0, err
}

// eachBucket calls f for the entries of all buckets of tables, so many of which it reads
// concurrently. It calls f from one goroutine at a time, and for the entries of a bucket in order.
func (s *Store) eachBucket(ctx context.Context, readers int, tables []string, read func(ctx context.Context, table string, bucket int) ([]ChainEntry, error), f func(table string, e ChainEntry) error) error {
	turn := make(chan struct{}, 1) // has a token while f is called, which may wait: a mutex would stop the clock of a test
	failed := false                // f has returned an error; used with the token
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, table := range tables {
		for bucket := range chainBuckets {
			g.Go(func() error {
				entries, err := read(gctx, table, bucket)
				if err != nil {
					return err
				}
				select {
				case turn <- struct{}{}:
				case <-gctx.Done():
					return context.Cause(gctx)
				}
				defer func() { <-turn }()
				for _, e := range entries {
					if failed {
						return nil
					}
					if err := f(table, e); err != nil {
						failed = true
						return err
					}
				}
				return nil
			})
		}
	}
	return g.Wait()
}

// ChainsAndBegun is Chains. In addition it calls begun, from the goroutine of f, for
// each event that is listed without a stored dead letter: a process that began to write
// it has crashed, or may still store it at any time. Such an entry contains the event,
// its aggregate, its sequence number and its write time.
//
// Write adds the entries of lists before it calls the fence (WithFence) and stores the
// dead letter. So begun receives each one that passed the fence before ChainsAndBegun
// was called and is not stored yet.
func (s *Store) ChainsAndBegun(ctx context.Context, table string, f func(ChainEntry) error, begun func(ChainEntry)) error {
	r := chainReader{s, table, chainPage, nil}
	var got atomic.Int64 // last successful read of a bucket: occasional failures must not end the reads
	got.Store(time.Now().UnixNano())
	return s.eachBucket(ctx, chainReaders, []string{table}, func(ctx context.Context, _ string, bucket int) ([]ChainEntry, error) {
		entries, err := r.bucket(ctx, bucket)
		for err != nil {
			if permanent(err) || ctx.Err() != nil || time.Since(time.Unix(0, got.Load())) > s.db.Budget {
				return nil, err
			}
			s.db.Retry(ctx).Pause()
			entries, err = r.bucket(ctx, bucket)
		}
		got.Store(time.Now().UnixNano())
		return entries, nil
	}, func(_ string, e ChainEntry) error {
		if e.begun() {
			begun(e)
			return nil
		}
		return f(e)
	})
}

// Chain is Chains for one aggregate.
func (s *Store) Chain(ctx context.Context, table, aggregate string) ([]ChainEntry, error) {
	var out []ChainEntry
	err := chainReader{s, table, wholeChain, nil}.walk(ctx, s.db.Select(ctx, s.stmt.chain, table, chainBucket(aggregate), aggregate), func(e ChainEntry) error {
		if !e.begun() {
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

// Stats counts dead letters.
type Stats struct {
	// ByStatus counts all dead letters.
	ByStatus map[Status]int64
	// OpenByClass, OpenByType and OpenByTable count open dead letters by error class, event
	// type and table.
	OpenByClass, OpenByType, OpenByTable map[string]int64
	// Open is the number of open dead letters.
	Open int64
	// Oldest is the earliest first failure of an open dead letter; zero without any.
	Oldest time.Time
}

// statsQueries limits the concurrent queries of Stats, and manyReads the concurrent reads of dead
// letters by id of all callers of a Store.
const statsQueries, manyReads = 64, 256

// Stats counts the entries of lists, an hour at a time, and reads no dead letter. The
// counts are exact except for concurrent changes and for entries that a crash left;
// those count until the next List removes them.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	out := Stats{ByStatus: make(map[Status]int64)}
	for _, st := range Statuses {
		out.ByStatus[st] = 0
	}
	var byStatus map[string]int64
	g, gctx := errgroup.WithContext(ctx)
	for kind, counts := range map[string]*map[string]int64{kindStatus: &byStatus, kindOpenClass: &out.OpenByClass, kindOpenType: &out.OpenByType, kindOpenTable: &out.OpenByTable} {
		g.Go(func() error {
			open := func(value string) bool { return Status(value).Open() }
			if kind != kindStatus {
				open = nil
			}
			found, oldest, err := s.lists.count(gctx, kind, time.Time{}, time.Time{}, nil, open)
			if *counts = found; kind == kindStatus {
				out.Oldest = oldest
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Stats{}, err
	}
	for value, n := range byStatus {
		st := Status(value)
		out.ByStatus[st] += n
		if st.Open() {
			out.Open += n
		}
	}
	return out, nil
}

// OpenStatuses are the statuses of open dead letters.
var OpenStatuses = []Status{Pending, Blocked, Processing, Failed, Suspended}

// Tally counts dead letters by status. It counts those whose first failure is in the
// hours from since to until; the zero time is no bound. Like Stats, it counts entries
// of lists.
func (s *Store) Tally(ctx context.Context, statuses []Status, since, until time.Time) (map[Status]int64, error) {
	of := func(value string) bool { return slices.Contains(statuses, Status(value)) }
	counts, _, err := s.lists.count(ctx, kindStatus, since, until, of, nil)
	if err != nil {
		return nil, err
	}
	out := make(map[Status]int64, len(statuses))
	for _, st := range statuses {
		out[st] = counts[string(st)]
	}
	return out, nil
}

// Oldest returns the dead letter of a status with the earliest first failure, without
// its payload, or ErrNotFound.
func (s *Store) Oldest(ctx context.Context, st Status) (DeadLetter, error) {
	hours, err := s.lists.hours(ctx, listKey{kindStatus, string(st)}, time.Unix(0, 0), latest)
	if err != nil {
		return DeadLetter{}, err
	}
	for _, h := range slices.Backward(hours) {
		l, err := s.oldestInHour(ctx, st, h)
		if !errors.Is(err, ErrNotFound) {
			return l, err
		}
	}
	return DeadLetter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}

// oldestInHour is Oldest of an hour.
func (s *Store) oldestInHour(ctx context.Context, st Status, hour time.Time) (DeadLetter, error) {
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
		deadLetters, err := s.readMany(ctx, ids)
		if err != nil {
			_ = iter.Close() // the caller receives the first error
			return DeadLetter{}, err
		}
		for _, id := range ids {
			if l, ok := deadLetters[id]; ok && l.Status == st {
				_ = iter.Close() // the result of the rest is not needed
				return l, nil
			}
		}
	}
	if err := iter.Close(); err != nil {
		return DeadLetter{}, fmt.Errorf("read the oldest %s dead letter: %w", st, err)
	}
	return DeadLetter{}, fmt.Errorf("%s: %w", st, ErrNotFound)
}

// Tidy removes the hours without dead letters from the lists and returns their number.
// Without it, counts and listings would query every hour that ever had one. It costs a
// query for each hour of each list, at most 200 per second.
//
// Any number of processes may run it beside processes that write and change dead
// letters: a removal has a timestamp that is announceKept before the hour was found
// empty, so it does not remove a younger announcement.
func (s *Store) Tidy(ctx context.Context) (gone int, err error) { return s.lists.tidy(ctx) }
