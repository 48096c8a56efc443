package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// row is an entry of a list: the current or a former place of a dead letter.
type row struct {
	at    time.Time
	event gocql.UUID
	list  listKey
}

// group contains the entries of one millisecond. Within it the order of ids is the
// database's, so whole groups are compared.
type group struct {
	at   time.Time
	rows []row
}

// reader reads lists from new to old, a millisecond at a time.
type reader interface {
	// next returns the newest group that is not after limit and older than the groups
	// returned before; ok is false at the end.
	next(ctx context.Context, limit time.Time) (g group, ok bool, err error)
	close()
}

// listReader reads one list from until, exclusive, down to since.
type listReader struct {
	lists        *lists
	list         listKey
	since, until time.Time

	opened  bool
	buckets []time.Time // not begun, newest first
	iter    *gocql.Iter // of a bucket; nil before one is begun
	bucket  time.Time   // of iter
	ahead   row         // read and not returned
	have    bool
	passed  int // rows passed over since iter began

	// While hours contain little, the next ones are queried ahead.
	width  int       // number of queries
	queue  []opening // of the first of buckets
	ctx    context.Context
	cancel context.CancelFunc
}

// opening is a query in progress.
type opening struct {
	bucket time.Time
	iter   chan *gocql.Iter // receives one
}

// maxWidth limits the hours that are queried ahead.
const maxWidth = 8

// maxPassed limits the rows that are skipped before a new query starts further down.
const maxPassed = 500

// listPage is the number of rows of a page.
const listPage = 1000

func (r *listReader) next(ctx context.Context, limit time.Time) (group, bool, error) {
	if err := r.advance(ctx, limit); err != nil || !r.have {
		return group{}, false, err
	}
	g := group{at: r.ahead.at}
	for r.have && r.ahead.at.Equal(g.at) {
		g.rows = append(g.rows, r.ahead)
		r.have = false
		if !r.scan() {
			// The next bucket is older.
			if err := r.end(); err != nil {
				return group{}, false, err
			}
		}
	}
	return g, true, nil
}

// advance makes ahead the newest row that is not after limit, if there is one.
func (r *listReader) advance(ctx context.Context, limit time.Time) error {
	if !r.opened {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	r.passed = 0
	for {
		if r.have && !r.ahead.at.After(limit) {
			return nil
		}
		r.have = false
		if r.iter != nil && (r.passed > maxPassed || r.list.kind != kindAggregate && r.bucket.After(limit)) {
			// Far above the limit: start a new query there.
			if !r.bucket.After(limit) {
				r.buckets = slices.Insert(r.buckets, 0, r.bucket)
			}
			if err := r.end(); err != nil {
				return err
			}
			r.width = 0
		}
		if r.iter == nil {
			for len(r.buckets) > 0 && r.buckets[0].After(limit) {
				r.buckets = r.buckets[1:]
			}
			if len(r.buckets) == 0 {
				return nil
			}
			r.begin(limit)
		}
		if !r.scan() {
			if err := r.end(); err != nil {
				return err
			}
			continue
		}
		r.passed++
	}
}

// open lists the buckets.
func (r *listReader) open(ctx context.Context) error {
	r.opened = true
	r.ctx, r.cancel = context.WithCancel(ctx)
	if r.list.kind == kindAggregate {
		r.buckets = []time.Time{r.list.bucketOf(r.until)}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.lists.db.Timeout)
	defer cancel()
	iter := r.lists.db.Select(ctx, r.lists.stmt.buckets, r.list.kind, r.list.value, r.list.bucketOf(r.since), r.until).Prefetch(0).Iter()
	var b time.Time
	for iter.Scan(&b) {
		r.buckets = append(r.buckets, b)
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read which lists of %s %s there are: %w", r.list.kind, r.list.value, err)
	}
	return nil
}

// begin opens the first of the buckets.
func (r *listReader) begin(limit time.Time) {
	r.bucket, r.passed = r.buckets[0], 0
	r.buckets = r.buckets[1:]
	for len(r.queue) > 0 && !r.queue[0].bucket.Equal(r.bucket) {
		r.forget(1)
	}
	if len(r.queue) > 0 {
		r.iter = <-r.queue[0].iter
		r.queue = r.queue[1:]
	} else {
		until := r.until
		if below := limit.Add(time.Millisecond); below.Before(until) {
			until = below
		}
		r.iter = r.query(r.bucket, until)
	}
	for len(r.queue) < min(r.width, len(r.buckets)) {
		o := opening{r.buckets[len(r.queue)], make(chan *gocql.Iter, 1)}
		r.queue = append(r.queue, o)
		go func() { o.iter <- r.query(o.bucket, r.until) }()
	}
}

// query queries the rows of a bucket and waits for the first page.
func (r *listReader) query(bucket, until time.Time) *gocql.Iter {
	return r.lists.db.Select(r.ctx, r.lists.stmt.lookups, r.list.kind, r.list.value, bucket, r.since, until).
		PageSize(listPage).Prefetch(0).Iter()
}

// forget discards the first n queries of the queue.
func (r *listReader) forget(n int) {
	for _, o := range r.queue[:n] {
		_ = (<-o.iter).Close() // the rows are not needed
	}
	r.queue = r.queue[n:]
}

func (r *listReader) scan() bool {
	r.have = r.iter.Scan(&r.ahead.at, &r.ahead.event)
	r.ahead.list = r.list
	return r.have
}

// end ends the query of a bucket whose rows are read or not needed.
func (r *listReader) end() error {
	err := r.iter.Close()
	r.width = min(2*r.width+1, maxWidth)
	r.iter = nil
	if err != nil {
		return fmt.Errorf("read the list of %s %s: %w", r.list.kind, r.list.value, err)
	}
	return nil
}

func (r *listReader) close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.forget(len(r.queue))
	if r.iter != nil {
		_ = r.iter.Close() // the rows are not needed
		r.iter = nil
	}
}

// anyOf reads the union of several lists.
type anyOf struct {
	readers []reader
	heads   []*group // nil: not read
	done    []bool
}

func newAnyOf(readers []reader) reader {
	if len(readers) == 1 {
		return readers[0]
	}
	return &anyOf{readers: readers, heads: make([]*group, len(readers)), done: make([]bool, len(readers))}
}

func (a *anyOf) next(ctx context.Context, limit time.Time) (group, bool, error) {
	var newest *group
	for i, r := range a.readers {
		for !a.done[i] && (a.heads[i] == nil || a.heads[i].at.After(limit)) {
			g, ok, err := r.next(ctx, limit)
			if err != nil {
				return group{}, false, err
			}
			a.done[i] = !ok
			if ok {
				a.heads[i] = &g
			} else {
				a.heads[i] = nil
			}
		}
		if h := a.heads[i]; h != nil && !h.at.After(limit) && (newest == nil || h.at.After(newest.at)) {
			newest = h
		}
	}
	if newest == nil {
		return group{}, false, nil
	}
	out := group{at: newest.at}
	for i, h := range a.heads {
		if h != nil && h.at.Equal(out.at) {
			out.rows = append(out.rows, h.rows...)
			a.heads[i] = nil
		}
	}
	return out, true, nil
}

func (a *anyOf) close() {
	for _, r := range a.readers {
		r.close()
	}
}

// allOf reads the intersection of several lists. It returns a row of each list for a
// dead letter.
type allOf struct {
	readers []reader
	heads   []*group // nil: not read
}

func newAllOf(readers []reader) reader {
	if len(readers) == 1 {
		return readers[0]
	}
	return &allOf{readers: readers, heads: make([]*group, len(readers))}
}

func (a *allOf) next(ctx context.Context, limit time.Time) (group, bool, error) {
	for {
		for i := 0; i < len(a.readers); i++ {
			if a.heads[i] == nil || a.heads[i].at.After(limit) {
				g, ok, err := a.readers[i].next(ctx, limit)
				if err != nil || !ok {
					return group{}, false, err
				}
				a.heads[i] = &g
			}
			if at := a.heads[i].at; at.Before(limit) {
				limit = at
				i = -1 // the readers before this one must go down to the new limit
			}
		}
		out := group{at: limit, rows: intersect(a.heads)}
		clear(a.heads)
		if len(out.rows) > 0 {
			return out, true, nil
		}
		limit = limit.Add(-time.Millisecond)
	}
}

func (a *allOf) close() {
	for _, r := range a.readers {
		r.close()
	}
}

// intersect returns the rows of events that are in every group.
func intersect(groups []*group) []row {
	in := make(map[gocql.UUID]int) // number of groups, counted from the first on
	for i, g := range groups {
		for _, r := range g.rows {
			if in[r.event] == i {
				in[r.event] = i + 1
			}
		}
	}
	var out []row
	for _, g := range groups {
		for _, r := range g.rows {
			if in[r.event] == len(groups) {
				out = append(out, r)
			}
		}
	}
	return out
}

func sortByEvent(rows []row) {
	slices.SortFunc(rows, func(a, b row) int { return bytes.Compare(a.event[:], b.event[:]) })
}
