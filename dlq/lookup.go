package dlq

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
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
func (ls *lists) add(ctx context.Context, l *Letter, on []shelf, chain bool) error {
	return ls.addMany(ctx, []listed{{l, on, chain}})
}

// listed is a letter and the lists that it comes on or goes off.
type listed struct {
	letter *Letter
	on     []shelf
	chain  bool
}

// addMany is add for several letters.
func (ls *lists) addMany(ctx context.Context, letters []listed) error {
	b := ls.db.Batch()
	for _, x := range letters {
		l := x.letter
		for _, f := range x.on {
			if err := ls.openBucket(ctx, f, f.bucketOf(l.FirstFailedAt)); err != nil {
				return err
			}
			b.Query(ls.stmt.lookupAdd, f.kind, f.value, f.bucketOf(l.FirstFailedAt), l.FirstFailedAt, l.EventID, addedAt(l.Version))
		}
		if x.chain {
			b.Query(ls.stmt.chainAdd, l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID, addedAt(l.Version))
		}
	}
	if b.Size() == 0 {
		return nil
	}
	if err := ls.db.Execute(ctx, b); err != nil {
		return fmt.Errorf("list dead letter %s and %d more: %w", letters[0].letter.EventID, len(letters)-1, err)
	}
	// Again, if the process stood still in between for so long that Tidy may have
	// been there.
	for _, x := range letters {
		for _, f := range x.on {
			if err := ls.openBucket(ctx, f, f.bucketOf(x.letter.FirstFailedAt)); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropMany is drop for several letters, each as it stands.
func (ls *lists) dropMany(ctx context.Context, letters []listed) error {
	b := ls.db.Batch()
	for _, x := range letters {
		ls.dropFrom(b, x.letter, x.letter.Version, x.on, x.chain)
	}
	if b.Size() == 0 {
		return nil
	}
	return ls.db.Execute(ctx, b)
}

func (ls *lists) dropFrom(b *gocql.Batch, l *Letter, at int64, off []shelf, chain bool) {
	for _, f := range off {
		b.Query(ls.stmt.lookupDrop, droppedAt(at), f.kind, f.value, f.bucketOf(l.FirstFailedAt), l.FirstFailedAt, l.EventID)
	}
	if chain {
		b.Query(ls.stmt.chainDrop, droppedAt(at), l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID)
	}
}

// drop removes l from shelves on which it does not stand any more, and from its
// chain if chain is set. at is the letter's version now.
func (ls *lists) drop(ctx context.Context, l *Letter, at int64, off []shelf, chain bool) error {
	if len(off) == 0 && !chain {
		return nil
	}
	b := ls.db.Batch()
	ls.dropFrom(b, l, at, off, chain)
	if err := ls.db.Execute(ctx, b); err != nil {
		return fmt.Errorf("take dead letter %s off its lists: %w", l.EventID, err)
	}
	return nil
}

// lists are the tables that list dead letters by status, aggregate, error class and
// event type, and those of each aggregate in order. It is safe for concurrent use.
type lists struct {
	db   *db.DB
	stmt listStatements

	// mu guards when this process announced which buckets. No statement is executed
	// while it is locked.
	mu struct {
		sync.Mutex
		announced map[bucketKey]time.Time
	}
}

type bucketKey struct {
	shelf
	bucket int64
}

// maxBucketsSeen bounds the cache; forgetting costs a write.
const maxBucketsSeen = 10_000

// openBucket makes sure that readers know the bucket, and that Tidy leaves it for a
// while.
func (ls *lists) openBucket(ctx context.Context, f shelf, bucket time.Time) error {
	if f.kind == kindAggregate {
		return nil
	}
	key, now := bucketKey{f, bucket.Unix()}, ls.db.Now()
	ls.mu.Lock()
	at, known := ls.mu.announced[key]
	ls.mu.Unlock()
	if age := now.Sub(at); known && age >= 0 && age < announceAgain {
		return nil
	}
	qctx, cancel := context.WithTimeout(ctx, ls.db.Timeout)
	defer cancel()
	if err := ls.db.Query(qctx, ls.stmt.bucketAdd, f.kind, f.value, bucket, now.UnixMicro()).Idempotent(true).Exec(); err != nil {
		return fmt.Errorf("open the list of %s %s: %w", f.kind, f.value, err)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.mu.announced == nil || len(ls.mu.announced) >= maxBucketsSeen {
		ls.mu.announced = make(map[bucketKey]time.Time)
	}
	ls.mu.announced[key] = now
	return nil
}
