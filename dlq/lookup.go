package dlq

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// shelf is a list of letters in dead_letter_lookups, without its bucket.
type shelf struct{ kind, value string }

// The kinds of shelves. A letter that is whole stands on one of each, on the open ones while
// it is open and on the closed ones after.
const (
	kindStatus    = "status"
	kindAggregate = "aggregate"
	kindOpenClass = "open_class"
	kindDoneClass = "done_class"
	kindOpenType  = "open_type"
	kindDoneType  = "done_type"
	// kindJob is no shelf of letters: its buckets are the months of jobs.
	kindJob = "job"
)

// shelves are where a letter stands.
func shelves(l *Letter) []shelf {
	if !l.PurgedAt.IsZero() {
		return []shelf{{kindStatus, string(l.Status)}}
	}
	class, typ := kindDoneClass, kindDoneType
	if l.Status.Open() {
		class, typ = kindOpenClass, kindOpenType
	}
	return []shelf{
		{kindStatus, string(l.Status)},
		{kindAggregate, l.AggregateID},
		{class, l.ErrorClass},
		{typ, l.EventType},
	}
}

// bucketOf is the partition of a shelf: an hour, but one for all letters of an
// aggregate.
func (f shelf) bucketOf(at time.Time) time.Time {
	if f.kind == kindAggregate {
		return time.Unix(0, 0).UTC()
	}
	return at.UTC().Truncate(time.Hour)
}

// chainBuckets is into how many partitions the chains of a table are spread. It
// is part of what is stored.
const chainBuckets = 64

func chainBucket(aggregate string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(aggregate)) // never fails
	return int(h.Sum32() % chainBuckets)
}

// Rows of lookups are written with timestamps that follow from the letter's
// version, so that writes of two processes, or one that comes late, leave what
// the last change left, in whatever order they arrive.

// addedAt is the timestamp of rows that are right from version v on.
func addedAt(v int64) int64 { return 2 * v }

// droppedAt is that of the removal of rows that are wrong at version v.
func droppedAt(v int64) int64 { return 2*v + 1 }

// add puts l on the shelves in add, and into its chain if chain is set.
func (s *Store) add(ctx context.Context, l *Letter, on []shelf, chain bool) error {
	return s.addMany(ctx, []listed{{l, on, chain}})
}

// listed is a letter and the lists that it comes on or goes off.
type listed struct {
	letter *Letter
	on     []shelf
	chain  bool
}

// addMany is add for several letters.
func (s *Store) addMany(ctx context.Context, letters []listed) error {
	b := s.batch()
	for _, x := range letters {
		l := x.letter
		for _, f := range x.on {
			if err := s.openBucket(ctx, f, f.bucketOf(l.FirstFailedAt)); err != nil {
				return err
			}
			b.Query(s.stmt.lookupAdd, f.kind, f.value, f.bucketOf(l.FirstFailedAt), l.FirstFailedAt, l.EventID, addedAt(l.Version))
		}
		if x.chain {
			b.Query(s.stmt.chainAdd, l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID, addedAt(l.Version))
		}
	}
	if b.Size() == 0 {
		return nil
	}
	if err := s.execute(ctx, b); err != nil {
		return fmt.Errorf("list dead letter %s and %d more: %w", letters[0].letter.EventID, len(letters)-1, err)
	}
	// Again, if the process stood still in between for so long that Tidy may have
	// been there.
	for _, x := range letters {
		for _, f := range x.on {
			if err := s.openBucket(ctx, f, f.bucketOf(x.letter.FirstFailedAt)); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropMany is drop for several letters, each as it stands.
func (s *Store) dropMany(ctx context.Context, letters []listed) error {
	b := s.batch()
	for _, x := range letters {
		s.dropFrom(b, x.letter, x.letter.Version, x.on, x.chain)
	}
	if b.Size() == 0 {
		return nil
	}
	return s.execute(ctx, b)
}

func (s *Store) dropFrom(b *gocql.Batch, l *Letter, at int64, off []shelf, chain bool) {
	for _, f := range off {
		b.Query(s.stmt.lookupDrop, droppedAt(at), f.kind, f.value, f.bucketOf(l.FirstFailedAt), l.FirstFailedAt, l.EventID)
	}
	if chain {
		b.Query(s.stmt.chainDrop, droppedAt(at), l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID)
	}
}

// drop removes l from shelves on which it does not stand any more, and from its
// chain if chain is set. at is the letter's version now.
func (s *Store) drop(ctx context.Context, l *Letter, at int64, off []shelf, chain bool) error {
	if len(off) == 0 && !chain {
		return nil
	}
	b := s.batch()
	s.dropFrom(b, l, at, off, chain)
	if err := s.execute(ctx, b); err != nil {
		return fmt.Errorf("take dead letter %s off its lists: %w", l.EventID, err)
	}
	return nil
}

// batch is unlogged: its rows lie in several partitions, and each is right or
// checked by itself. It saves round trips, and all of it may be repeated.
func (s *Store) batch() *gocql.Batch {
	b := s.session.Batch(gocql.UnloggedBatch).RetryPolicy(neverAgain{})
	b.SetConsistency(s.cons)
	b.DefaultTimestamp(false)
	return b
}

func (s *Store) execute(ctx context.Context, b *gocql.Batch) error {
	if err := s.may(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return b.WithContext(ctx).Exec()
}

// bucketCache remembers when this process announced which buckets.
type bucketCache struct {
	mu        sync.Mutex
	announced map[bucketKey]time.Time
}

type bucketKey struct {
	shelf
	bucket int64
}

// maxBucketsSeen bounds the cache; forgetting costs a write.
const maxBucketsSeen = 10_000

// openBucket makes sure that readers know the bucket, and that Tidy leaves it for a
// while.
func (s *Store) openBucket(ctx context.Context, f shelf, bucket time.Time) error {
	if f.kind == kindAggregate {
		return nil
	}
	key, now := bucketKey{f, bucket.Unix()}, s.now()
	s.buckets.mu.Lock()
	at, known := s.buckets.announced[key]
	s.buckets.mu.Unlock()
	if age := now.Sub(at); known && age >= 0 && age < announceAgain {
		return nil
	}
	written := now.UnixMicro()
	if f.kind == kindJob {
		written = 1 // for good: Tidy leaves months alone
	}
	qctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.query(qctx, s.stmt.bucketAdd, f.kind, f.value, bucket, written).Idempotent(true).Exec(); err != nil {
		return fmt.Errorf("open the list of %s %s: %w", f.kind, f.value, err)
	}
	s.buckets.mu.Lock()
	defer s.buckets.mu.Unlock()
	if s.buckets.announced == nil || len(s.buckets.announced) >= maxBucketsSeen {
		s.buckets.announced = make(map[bucketKey]time.Time)
	}
	s.buckets.announced[key] = now
	return nil
}
