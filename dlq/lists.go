package dlq

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// listKey identifies a list of dead letters in dead_letter_lookups, without its bucket.
type listKey struct{ kind, value string }

// The kinds of lists. A dead letter that is not purged is in one list of each kind, and
// in one for each of its tags: in the open ones while it is open, and in the closed ones
// afterwards.
const (
	kindStatus    = "status"
	kindAggregate = "aggregate"
	kindOpenClass = "open_class"
	kindDoneClass = "done_class"
	kindOpenType  = "open_type"
	kindDoneType  = "done_type"
	kindOpenTable = "open_table"
	kindDoneTable = "done_table"
	kindOpenTag   = "open_tag"
	kindDoneTag   = "done_tag"
)

// listKeys returns the lists that contain a dead letter.
func listKeys(l *DeadLetter) []listKey {
	if !l.PurgedAt.IsZero() {
		return []listKey{{kindStatus, string(l.Status)}}
	}
	class, typ, table, tag := kindDoneClass, kindDoneType, kindDoneTable, kindDoneTag
	if l.Status.Open() {
		class, typ, table, tag = kindOpenClass, kindOpenType, kindOpenTable, kindOpenTag
	}
	out := []listKey{
		{kindStatus, string(l.Status)},
		{kindAggregate, l.AggregateID},
		{class, l.ErrorClass},
		{typ, l.EventType},
		{table, l.Table},
	}
	for _, t := range l.Tags {
		out = append(out, listKey{tag, t})
	}
	return out
}

// bucketAt returns the partition of a list: an hour, or for an aggregate one partition.
func (f listKey) bucketAt(at time.Time) time.Time {
	if f.kind == kindAggregate {
		return time.Unix(0, 0).UTC()
	}
	return at.UTC().Truncate(time.Hour)
}

// chainBuckets is the number of partitions of the chains of a table. It is part of the
// stored format.
const chainBuckets = 64

func chainBucket(aggregate string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(aggregate)) // never fails
	return int(h.Sum32() % chainBuckets)
}

// The timestamps of lookups are derived from the version of the dead letter. Therefore
// concurrent and late writes of several processes leave the entries of the last change,
// in any order of arrival.

// addedAt is the timestamp of rows that are right from version v on.
func addedAt(v int64) int64 { return 2 * v }

// droppedAt is that of the removal of rows that are wrong at version v.
func droppedAt(v int64) int64 { return 2*v + 1 }

// listed is a dead letter and the lists to which it is added or from which it is removed, and
// whether its chain is one of them.
type listed struct {
	dead  *DeadLetter
	on    []listKey
	chain bool
}

// add adds dead letters to lists.
func (ls *lists) add(ctx context.Context, deadLetters ...listed) error {
	b := ls.db.Batch()
	for _, x := range deadLetters {
		l := x.dead
		for _, f := range x.on {
			if err := ls.openBucket(ctx, f, f.bucketAt(l.FirstFailedAt)); err != nil {
				return err
			}
			b.Query(ls.stmt.lookupAdd, f.kind, f.value, f.bucketAt(l.FirstFailedAt), l.FirstFailedAt, l.EventID, addedAt(l.Version))
		}
		if x.chain {
			b.Query(ls.stmt.chainAdd, l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID, addedAt(l.Version))
		}
	}
	if b.Size() == 0 {
		return nil
	}
	if err := ls.db.Execute(ctx, b); err != nil {
		return fmt.Errorf("list dead letter %s and %d more: %w", deadLetters[0].dead.EventID, len(deadLetters)-1, err)
	}
	// Repeat it, in case the process was suspended for so long that Tidy removed the
	// buckets.
	for _, x := range deadLetters {
		for _, f := range x.on {
			if err := ls.openBucket(ctx, f, f.bucketAt(x.dead.FirstFailedAt)); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop removes dead letters, whose versions are the current ones, from lists. If that fails,
// readers skip the stale entries.
func (ls *lists) drop(ctx context.Context, deadLetters ...listed) {
	b := ls.db.Batch()
	for _, x := range deadLetters {
		l := x.dead
		for _, f := range x.on {
			b.Query(ls.stmt.lookupDrop, droppedAt(l.Version), f.kind, f.value, f.bucketAt(l.FirstFailedAt), l.FirstFailedAt, l.EventID)
		}
		if x.chain {
			b.Query(ls.stmt.chainDrop, droppedAt(l.Version), l.Table, chainBucket(l.AggregateID), l.AggregateID, l.Sequence, l.WrittenAt, l.EventID)
		}
	}
	if b.Size() == 0 {
		return
	}
	if err := ls.db.Execute(ctx, b); err != nil {
		ls.db.Log.Debug("failed to remove stale list entries of dead letters; readers skip them",
			"event_id", deadLetters[0].dead.EventID, "dead_letters", len(deadLetters), "err", err)
	}
}

// lists are the tables that list dead letters by status, aggregate, error class, event
// type, table and tag, and the open ones of each aggregate in order. It is safe for concurrent
// use.
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
	listKey
	bucket int64
}

// maxBucketsSeen bounds the cache; forgetting costs a write.
const maxBucketsSeen = 10_000

// openBucket announces the bucket to readers, so that Tidy leaves it for a while. The database dates
// the announcement, as Tidy its removal: that of a host whose clock is behind would have no effect.
func (ls *lists) openBucket(ctx context.Context, f listKey, bucket time.Time) error {
	if f.kind == kindAggregate {
		return nil
	}
	key, now := bucketKey{f, bucket.Unix()}, ls.db.Clock.Now()
	ls.mu.Lock()
	at, known := ls.mu.announced[key]
	ls.mu.Unlock()
	if age := now.Sub(at); known && age >= 0 && age < announceAgain {
		return nil
	}
	if err := ls.db.Write(ctx, ls.stmt.bucketAdd, f.kind, f.value, bucket); err != nil {
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

// listsWithout returns the lists of a that do not contain b.
func listsWithout(a, b *DeadLetter) []listKey {
	out := listKeys(a)
	if !a.FirstFailedAt.Equal(b.FirstFailedAt) {
		return out
	}
	have := listKeys(b)
	return slices.DeleteFunc(out, func(f listKey) bool { return slices.Contains(have, f) })
}

func sameChain(a, b *DeadLetter) bool {
	return a.Table == b.Table && a.AggregateID == b.AggregateID && a.Sequence == b.Sequence && a.WrittenAt == b.WrittenAt
}

// countedHours is the number of hours whose entries one query counts.
const countedHours = 12

// hourCount is the number of entries of a list in some of its hours, which are in order.
type hourCount struct {
	value string
	hours []time.Time
	n     int64
}

// count counts the entries of the lists of a kind by value, whose first failure is in the hours
// from since to until; the zero time is no bound. It counts the values for which counted is true, all if
// that is nil, and returns the first failure among the values for which of is true.
func (ls *lists) count(ctx context.Context, kind string, since, until time.Time, counted, of func(value string) bool) (map[string]int64, time.Time, error) {
	keys, err := ls.announcedBuckets(ctx, kind)
	if err != nil {
		return nil, time.Time{}, err
	}
	keys = slices.DeleteFunc(keys, func(k bucketKey) bool {
		hour := time.Unix(k.bucket, 0)
		return counted != nil && !counted(k.value) || hour.Before(since.UTC().Truncate(time.Hour)) || !until.IsZero() && !hour.Before(until)
	})
	hours := make(map[string][]time.Time)
	for _, k := range keys {
		hours[k.value] = append(hours[k.value], time.Unix(k.bucket, 0))
	}
	var parts []*hourCount
	for value, all := range hours {
		slices.SortFunc(all, time.Time.Compare)
		for some := range slices.Chunk(all, countedHours) {
			parts = append(parts, &hourCount{value: value, hours: some})
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(statsQueries)
	for _, p := range parts {
		g.Go(func() error {
			qctx, cancel := context.WithTimeout(gctx, ls.db.Timeout)
			defer cancel()
			if err := ls.db.Select(qctx, ls.stmt.lookupSizes, kind, p.value, p.hours).Scan(&p.n); err != nil {
				return fmt.Errorf("count the list of %s %s: %w", kind, p.value, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, time.Time{}, err
	}
	counts, first := make(map[string]int64), make(map[string]*hourCount)
	for _, p := range parts {
		if p.n == 0 {
			continue
		}
		counts[p.value] += p.n
		if is := first[p.value]; of != nil && of(p.value) && (is == nil || p.hours[0].Before(is.hours[0])) {
			first[p.value] = p
		}
	}
	oldest, err := ls.oldest(ctx, kind, slices.Collect(maps.Values(first)))
	return counts, oldest, err
}

// oldest returns the first failure in the hours of some lists of a kind.
func (ls *lists) oldest(ctx context.Context, kind string, parts []*hourCount) (oldest time.Time, err error) {
	var mu sync.Mutex // of oldest
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(statsQueries)
	for _, p := range parts {
		for _, hour := range p.hours {
			g.Go(func() error {
				at, ok, err := ls.firstFailure(gctx, bucketKey{listKey{kind, p.value}, hour.Unix()})
				mu.Lock()
				defer mu.Unlock()
				if ok && (oldest.IsZero() || at.Before(oldest)) { // otherwise it moved on just now
					oldest = at
				}
				return err
			})
		}
	}
	return oldest, g.Wait()
}

// hours returns the hours from since to until that a list may have, newest first.
func (ls *lists) hours(ctx context.Context, f listKey, since, until time.Time) ([]time.Time, error) {
	out, err := db.Rows(ctx, ls.db, db.Column[time.Time], ls.stmt.buckets, f.kind, f.value, f.bucketAt(since), until)
	if err != nil {
		return nil, fmt.Errorf("read the hours of the list of %s %s: %w", f.kind, f.value, err)
	}
	return out, nil
}
