package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// chainKey is a row of dead_letter_chains.
type chainKey struct {
	aggregate      string
	seq, writtenAt int64
	event          gocql.UUID
}

// chainPage is how many letters are looked at in one query.
const chainPage = 50

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
				entries, err := s.bucket(gctx, table, bucket)
				for err != nil {
					if hopeless(err) || gctx.Err() != nil || time.Since(time.Unix(0, got.Load())) > s.db.Budget {
						return err
					}
					s.db.Retry(gctx).Pause()
					entries, err = s.bucket(gctx, table, bucket)
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

// begun says that the letter is listed and not stored.
func (e *ChainEntry) begun() bool { return e.Status == "" }

// bucket reads the letters of a bucket.
func (s *Store) bucket(ctx context.Context, table string, bucket int) (entries []ChainEntry, err error) {
	err = s.walk(ctx, table, s.db.Select(ctx, s.stmt.chains, table, bucket), func(e ChainEntry) error {
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// chainReaders is how many buckets are read at once. Each is held in memory.
const chainReaders = 8

// Chain is Chains for one aggregate.
func (s *Store) Chain(ctx context.Context, table, aggregate string) ([]ChainEntry, error) {
	var out []ChainEntry
	err := s.walk(ctx, table, s.db.Select(ctx, s.stmt.chain, table, chainBucket(aggregate), aggregate), func(e ChainEntry) error {
		if !e.begun() {
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

func (s *Store) walk(ctx context.Context, table string, q *gocql.Query, f func(ChainEntry) error) error {
	iter := q.Prefetch(0).Iter()
	page := make([]chainKey, 0, chainPage)
	var k chainKey
	for more := true; more; {
		more = iter.Scan(&k.aggregate, &k.seq, &k.writtenAt, &k.event)
		if more {
			page = append(page, k)
		}
		if len(page) == cap(page) || !more {
			if err := s.chainEntries(ctx, table, page, f); err != nil {
				_ = iter.Close() // the caller stops; what the query says is of no interest
				return err
			}
			page = page[:0]
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the dead letters of %s: %w", table, err)
	}
	return nil
}

// chainEntries calls f for those of a page that are open and stand there, and for those
// that are only begun.
func (s *Store) chainEntries(ctx context.Context, table string, page []chainKey, f func(ChainEntry) error) error {
	if len(page) == 0 {
		return nil
	}
	ids := make([]gocql.UUID, len(page))
	for i, k := range page {
		ids[i] = k.event
	}
	letters, err := s.readMany(ctx, ids)
	if err != nil {
		return err
	}
	for _, k := range page {
		l, ok := letters[k.event]
		if !ok {
			// Either the process died before it stored the letter, or that was
			// decided and left undone, which this settles.
			l, err = s.read(ctx, k.event, s.stmt.entry, (*Letter).entryDest, s.db.Serial)
			if errors.Is(err, ErrNotFound) {
				err = f(ChainEntry{EventID: k.event, AggregateID: k.aggregate, Sequence: k.seq, WrittenAt: k.writtenAt})
				if err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
		}
		here := &Letter{Table: table, AggregateID: k.aggregate, Sequence: k.seq, WrittenAt: k.writtenAt}
		if !l.Status.Open() || !sameChain(&l, here) {
			here.EventID = k.event
			if err := s.lists.drop(ctx, here, l.Version, nil, true); err != nil {
				s.db.Log.Debug("a stale entry of a chain stays", "event_id", k.event, "err", err)
			}
			continue
		}
		if err := f(l.Entry()); err != nil {
			return err
		}
	}
	return nil
}
