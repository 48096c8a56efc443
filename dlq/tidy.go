package dlq

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

const (
	// announceAgain is the time for which an announcement of a bucket is valid. Entries
	// are written only while the announcement is valid, or announced again.
	announceAgain = 10 * time.Minute
	// announceKept is the least age of an announcement when its bucket is found empty,
	// so that its removal does not remove a valid one: announceAgain, the time of a
	// write, and the differences between clocks.
	announceKept = time.Hour
	// tidyRate limits the buckets that Tidy checks per second.
	tidyRate = 200
)

// announcedKinds are the kinds of lists with a bucket for each hour.
var announcedKinds = []string{kindStatus, kindOpenClass, kindOpenType, kindDoneClass, kindDoneType, kindOpenTable, kindDoneTable, kindOpenTag, kindDoneTag}

func (ls *lists) tidy(ctx context.Context) (gone int, err error) {
	pace := rate.NewLimiter(tidyRate, 1)
	// Announcements have the time of the database: one that is removed ahead of it would hide
	// announcements that are written until then.
	server, err := ls.db.ServerTime(ctx)
	if err != nil {
		return 0, err
	}
	ahead := max(ls.db.Clock.Now().Sub(server), 0)
	for _, kind := range announcedKinds {
		announced, err := ls.announcedBuckets(ctx, kind)
		if err != nil {
			return gone, err
		}
		// The time of an announcement cannot be read; it is not older than its hour.
		old := ls.db.Clock.Now().Add(-ahead - announceKept - time.Hour).Unix()
		for _, k := range announced {
			if k.bucket >= old {
				continue
			}
			if err := pace.Wait(ctx); err != nil {
				return gone, err
			}
			before := ls.db.Clock.Now().Add(-ahead - announceKept)
			_, filled, err := ls.firstFailure(ctx, k)
			if err != nil {
				return gone, err
			}
			if filled {
				continue
			}
			if err := ls.db.Write(ctx, ls.stmt.bucketDrop, before.UnixMicro(), k.kind, k.value, time.Unix(k.bucket, 0)); err != nil {
				return gone, fmt.Errorf("remove an empty hour from the list of %s %s: %w", k.kind, k.value, err)
			}
			gone++
		}
	}
	return gone, nil
}

// announcedBuckets returns all announced buckets of a kind.
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

// firstFailure returns the first failure in a bucket; false without one. A bucket may begin
// with so many tombstones that its first page has no row, which Query.Scan takes for
// the end.
func (ls *lists) firstFailure(ctx context.Context, k bucketKey) (at time.Time, ok bool, err error) {
	iter := ls.db.Select(ctx, ls.stmt.lookupFirst, k.kind, k.value, time.Unix(k.bucket, 0)).Iter()
	ok = iter.Scan(&at)
	if err := iter.Close(); err != nil {
		return time.Time{}, false, fmt.Errorf("read the first of %s %s: %w", k.kind, k.value, err)
	}
	return at, ok, nil
}
