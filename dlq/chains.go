package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gocql/gocql"
	"golang.org/x/sync/semaphore"
)

// chainKey is a row of dead_letter_chains.
type chainKey struct {
	aggregate      string
	seq, writtenAt int64
	event          gocql.UUID
}

// chainReader reads the chains of one outbox table, the dead letters of so many entries at a time.
type chainReader struct {
	s     *Store
	table string
	page  int
	bound *chainBound // nil without
}

// chainBound bounds what several readers read together.
type chainBound struct {
	left  atomic.Int64        // entries that may still be read; negative if there were more
	later *semaphore.Weighted // of the pages of a bucket after its first one
}

// chainPage is the number of dead letters that one query reads, and wholeChain that of the entries of
// a chain whose dead letters are read concurrently for a caller who waits. boundedPage is wholeChain of
// many buckets at a time.
const chainPage, wholeChain, boundedPage = 50, 5000, 500

// begun reports whether the dead letter is listed and not stored.
func (e *ChainEntry) begun() bool { return e.Status == "" }

// bucket reads the dead letters of a bucket.
func (r chainReader) bucket(ctx context.Context, bucket int) (entries []ChainEntry, err error) {
	err = r.walk(ctx, r.s.db.Select(ctx, r.s.stmt.chains, r.table, bucket), func(e ChainEntry) error {
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// chainReaders limits the buckets that are read concurrently. Each is held in memory.
const chainReaders = 8

func (r chainReader) walk(ctx context.Context, q *gocql.Query, f func(ChainEntry) error) error {
	if r.bound != nil {
		if r.bound.left.Load() < 0 {
			return nil
		}
		q = q.PageSize(r.page)
	}
	iter := q.Prefetch(0).Iter()
	var page []chainKey
	var k chainKey
	pages := 0
	for more := true; more; {
		more = iter.Scan(&k.aggregate, &k.seq, &k.writtenAt, &k.event) && (r.bound == nil || r.bound.left.Add(-1) >= 0)
		if more {
			page = append(page, k)
		}
		if len(page) == r.page || !more {
			if err := r.entries(ctx, page, f); err != nil {
				_ = iter.Close() // the caller receives the first error
				return err
			}
			page = page[:0]
			if pages++; pages == 1 && more && r.bound != nil {
				if err := r.bound.later.Acquire(ctx, 1); err != nil {
					_ = iter.Close() // the caller receives the first error
					return err
				}
				defer r.bound.later.Release(1)
				more = r.bound.left.Load() >= 0
			}
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read the dead letters of %s: %w", r.table, err)
	}
	return nil
}

// entries calls f for the open dead letters of a page that belong to this chain, and
// for the ones that are only begun.
func (r chainReader) entries(ctx context.Context, page []chainKey, f func(ChainEntry) error) error {
	if len(page) == 0 {
		return nil
	}
	ids := make([]gocql.UUID, len(page))
	for i, k := range page {
		ids[i] = k.event
	}
	deadLetters, err := r.s.ReadMany(ctx, ids)
	if err != nil {
		return err
	}
	for _, k := range page {
		l, ok := deadLetters[k.event]
		if !ok {
			// Either the process crashed before it stored the dead letter, or a
			// transaction is pending, which a serial read completes.
			l, err = r.s.read(ctx, k.event, r.s.stmt.entry, (*DeadLetter).entryDest, r.s.db.Serial)
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
		here := &DeadLetter{Table: r.table, EventID: k.event, AggregateID: k.aggregate, Sequence: k.seq, WrittenAt: k.writtenAt, Version: l.Version}
		if !l.Status.Open() || !sameChain(&l, here) {
			r.s.lists.drop(ctx, listed{here, nil, true})
			continue
		}
		if err := f(l.Entry()); err != nil {
			return err
		}
	}
	return nil
}
