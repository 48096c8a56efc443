package dlq

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

const (
	// announceAgain is how long an announcement of a bucket counts. What is written
	// into the bucket has one that is younger, or is followed by another.
	announceAgain = 10 * time.Minute
	// announceKept is by how much an announcement must be older than the reading
	// that found the bucket empty, so that its removal cannot hit one that somebody
	// relies on: announceAgain, the time that a write takes, and clocks that differ.
	announceKept = time.Hour
	// tidyRate is how many buckets per second Tidy looks at.
	tidyRate = 200
)

// announcedKinds are the shelves that have buckets of hours.
var announcedKinds = []string{kindStatus, kindOpenClass, kindOpenType, kindDoneClass, kindDoneType}

func (ls *lists) tidy(ctx context.Context) (gone int, err error) {
	pace := rate.NewLimiter(tidyRate, 1)
	for _, kind := range announcedKinds {
		announced, err := ls.announcedBuckets(ctx, kind)
		if err != nil {
			return gone, err
		}
		// When an announcement was made cannot be asked; it is not older than its hour.
		old := ls.db.Now().Add(-announceKept - time.Hour).Unix()
		for _, k := range announced {
			if k.bucket >= old {
				continue
			}
			if err := pace.Wait(ctx); err != nil {
				return gone, err
			}
			before := ls.db.Now().Add(-announceKept)
			filled, err := ls.filled(ctx, k)
			if err != nil {
				return gone, err
			}
			if filled {
				continue
			}
			if err := ls.db.Query(ctx, ls.stmt.bucketDrop, before.UnixMicro(), k.kind, k.value, time.Unix(k.bucket, 0)).Idempotent(true).Exec(); err != nil {
				return gone, fmt.Errorf("take an empty hour off the list of %s %s: %w", k.kind, k.value, err)
			}
			gone++
		}
	}
	return gone, nil
}

// announcedBuckets are all buckets of a kind of which readers know.
func (ls *lists) announcedBuckets(ctx context.Context, kind string) (out []bucketKey, err error) {
	iter := ls.db.Select(ctx, ls.stmt.allBuckets, kind).Prefetch(0).Iter()
	var value string
	var bucket time.Time
	for iter.Scan(&value, &bucket) {
		out = append(out, bucketKey{listKey{kind, value}, bucket.Unix()})
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read which lists of %s there are: %w", kind, err)
	}
	return out, nil
}

// filled says whether a bucket holds an entry.
func (ls *lists) filled(ctx context.Context, k bucketKey) (bool, error) {
	_, ok, err := ls.firstOf(ctx, k)
	return ok, err
}

// firstOf is when the first letter of a bucket died; false without one. A bucket may
// begin with so many tombstones that its first page has no row, which Query.Scan takes
// for the end.
func (ls *lists) firstOf(ctx context.Context, k bucketKey) (at time.Time, ok bool, err error) {
	iter := ls.db.Select(ctx, ls.stmt.lookupFirst, k.kind, k.value, time.Unix(k.bucket, 0)).Iter()
	ok = iter.Scan(&at)
	if err := iter.Close(); err != nil {
		return time.Time{}, false, fmt.Errorf("read the first of %s %s: %w", k.kind, k.value, err)
	}
	return at, ok, nil
}
