package schedule

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
)

// slot refers to a message, at the time when it must be read.
type slot struct {
	bucket time.Time
	at     time.Time
	id     gocql.UUID
	topic  string
	// changed: when the slot was read, its message was no longer waiting for its
	// time. False proves nothing.
	changed bool
}

// compare orders slots as their table does: uuids of different versions by version.
func (a slot) compare(b slot) int {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id.Version(), b.id.Version()), bytes.Compare(a.id[:], b.id[:]))
}

// key returns the primary key of the slot.
func (a slot) key() []any { return []any{a.bucket, shardFor(a.id), a.at.UnixMilli(), a.id} }

func (a slot) position() Position { return Position{a.at, a.id} }

// readSlots reads the slots of a bucket after a position until a time, inclusive,
// in order: at most perShard of each shard. more reports that others follow the
// last one; up to it the result is complete.
func (s *Store) readSlots(ctx context.Context, bucket time.Time, after Position, until time.Time, perShard int) (out []slot, more bool, err error) {
	var read [shards][]slot
	g, ctx := errgroup.WithContext(ctx)
	for shard := range shards {
		g.Go(func() (err error) {
			read[shard], err = s.slots(ctx, bucket, shard, after, until, perShard)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	// Slots after the last one of a full page may follow unread ones.
	var last slot
	for _, one := range read {
		out = append(out, one...)
		if len(one) == perShard && (!more || one[perShard-1].compare(last) < 0) {
			last, more = one[perShard-1], true
		}
	}
	slices.SortFunc(out, slot.compare)
	if more {
		n, _ := slices.BinarySearchFunc(out, last, slot.compare)
		out = out[:n+1]
	}
	return out, more, nil
}

// slots reads one shard of a bucket. A position without an id is before all of its time.
func (s *Store) slots(ctx context.Context, bucket time.Time, shard int, after Position, until time.Time, limit int) ([]slot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var out []slot
	read := func(stmt string, args ...any) error {
		iter := s.query(ctx, stmt, args...).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).PageSize(limit + 1).Iter()
		for x, changedAt := (slot{bucket: bucket}), (time.Time{}); iter.Scan(&x.at, &x.id, &x.topic, &changedAt); {
			x.at, x.changed = x.at.UTC(), !changedAt.IsZero()
			out = append(out, x)
		}
		if err := iter.Close(); err != nil {
			return fmt.Errorf("read slots of %s: %w", bucket.Format(time.RFC3339), err)
		}
		return nil
	}
	from := after.DeliverAt
	if after.ID != (gocql.UUID{}) {
		if err := read(selectSlotsAt, bucket, shard, from.UnixMilli(), after.ID, limit); err != nil {
			return nil, err
		}
		from = from.Add(time.Millisecond)
	}
	if len(out) == limit {
		return out, nil
	}
	return out, read(selectSlots, bucket, shard, from.UnixMilli(), until.UnixMilli(), limit-len(out))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// dropSlots removes slots without the state of a message. A slot that is written
// again exists again.
func (s *Store) dropSlots(ctx context.Context, slots ...slot) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.batch(ctx)
	for _, x := range slots {
		b.Query(dropSlot, x.key()...)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("remove %d slots from that of message %s: %w", len(slots), slots[0].id, err)
	}
	return nil
}

// endSlots removes the slots of messages that are removed or marked as cancelled.
// Like forget, it is at QUORUM, and covers the transactions before it.
func (s *Store) endSlots(ctx context.Context, now time.Time, slots ...slot) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.batch(ctx)
	b.SetConsistency(gocql.Quorum)
	for _, x := range slots {
		b.Query(endSlot, append([]any{now.Add(removedAfter).UnixMicro()}, x.key()...)...)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("remove %d slots from that of message %s: %w", len(slots), slots[0].id, err)
	}
	return nil
}

// buckets returns the minutes from from to until that may have slots, in order,
// at most limit.
func (s *Store) buckets(ctx context.Context, from, until time.Time, limit int) ([]time.Time, error) {
	var out []time.Time
	for _, month := range months(from, until) {
		more, err := s.readBuckets(ctx, month, bucketAt(from), until, limit-len(out))
		if err != nil {
			return nil, err
		}
		if out = append(out, more...); len(out) >= limit {
			break
		}
	}
	return out, nil
}

func (s *Store) readBuckets(ctx context.Context, month int, from, until time.Time, limit int) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	iter := s.query(ctx, selectBuckets, month, from, until, limit).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Iter()
	var out []time.Time
	for bucket := (time.Time{}); iter.Scan(&bucket); {
		out = append(out, bucket.UTC())
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the buckets of month %d: %w", month, err)
	}
	return out, nil
}

// measure measures the clock of the database.
func (s *Store) measure(ctx context.Context, clock *dbclock.Clock) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return clock.Measure(ctx, s.session)
}

// closeBucket removes an empty bucket as of at; a slot that is written later
// keeps it.
func (s *Store) closeBucket(ctx context.Context, bucket, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.query(ctx, dropBucket, at.UnixMicro(), monthAt(bucket), bucket).Idempotent(true).Exec(); err != nil {
		return fmt.Errorf("close bucket %s: %w", bucket.Format(time.RFC3339), err)
	}
	return nil
}
