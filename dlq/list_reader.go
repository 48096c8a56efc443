package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
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
	pace    pace

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

// pace is how far a listReader reads ahead.
type pace struct {
	first, most int // hours that are queried ahead, at first and at most
	page, ahead int // rows of a page, and of one of an hour that is queried ahead
}

// listPace is the pace of a listing that may be long.
var listPace = pace{most: 8, page: 1000, ahead: 1000}

// newPace returns the pace of a listing of which a caller waits for n dead letters: it reads many
// hours at once, each no further than needed.
func newPace(n int) pace {
	return pace{first: min(max(n/8, 15), 63), most: 127, page: min(max(n, 50), listPace.page), ahead: min(max(n/4, 50), listPace.page)}
}

// maxPassed limits the rows that are skipped before a new query starts further down.
const maxPassed = 500

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
			r.width = r.pace.first
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
	r.opened, r.width = true, r.pace.first
	r.ctx, r.cancel = context.WithCancel(ctx)
	if r.list.kind == kindAggregate {
		r.buckets = []time.Time{r.list.bucketAt(r.until)}
		return nil
	}
	var err error
	r.buckets, err = r.lists.hours(ctx, r.list, r.since, r.until)
	return err
}

// begin opens the first of the buckets.
func (r *listReader) begin(limit time.Time) {
	r.bucket, r.passed = r.buckets[0], 0
	r.buckets = r.buckets[1:]
	for len(r.queue) > 0 && !r.queue[0].bucket.Equal(r.bucket) {
		r.forget(1)
	}
	until := r.until
	if below := limit.Add(time.Millisecond); below.Before(until) {
		until = below
	}
	if len(r.queue) == 0 {
		r.ask(r.bucket, until, r.pace.page)
	}
	first := r.queue[0]
	r.queue = r.queue[1:]
	for len(r.queue) < min(r.width, len(r.buckets)) {
		r.ask(r.buckets[len(r.queue)], r.until, r.pace.ahead)
	}
	r.iter = <-first.iter
}

// ask begins the query of a bucket and adds it to the queue.
func (r *listReader) ask(bucket, until time.Time, page int) {
	o := opening{bucket, make(chan *gocql.Iter, 1)}
	r.queue = append(r.queue, o)
	go func() { o.iter <- r.query(bucket, until, page) }()
}

// query queries the rows of a bucket and waits for the first page.
func (r *listReader) query(bucket, until time.Time, page int) *gocql.Iter {
	return r.lists.db.Select(r.ctx, r.lists.stmt.lookups, r.list.kind, r.list.value, bucket, r.since, until).
		PageSize(page).Prefetch(0).Iter()
}

// forget discards the first n queries of the queue, without waiting for them.
func (r *listReader) forget(n int) {
	for _, o := range r.queue[:n] {
		go func() { _ = (<-o.iter).Close() }() // the rows are not needed
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
	r.width = min(2*r.width+1, r.pace.most)
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

func newUnion(readers []reader) reader {
	if len(readers) == 1 {
		return readers[0]
	}
	return &anyOf{readers: readers, heads: make([]*group, len(readers)), done: make([]bool, len(readers))}
}

func (a *anyOf) next(ctx context.Context, limit time.Time) (group, bool, error) {
	var newest *group
	var stale []int
	for i := range a.readers {
		if !a.done[i] && (a.heads[i] == nil || a.heads[i].at.After(limit)) {
			stale = append(stale, i)
		}
	}
	if err := readHeads(ctx, limit, a.readers, a.heads, stale); err != nil {
		return group{}, false, err
	}
	for _, i := range stale {
		a.done[i] = a.heads[i] == nil
	}
	for _, h := range a.heads {
		if h != nil && !h.at.After(limit) && (newest == nil || h.at.After(newest.at)) {
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

// readHeads sets the heads of some readers to their next groups, nil at the end of one. It reads them
// concurrently, with ctx, which their queries ahead keep.
func readHeads(ctx context.Context, limit time.Time, readers []reader, heads []*group, some []int) error {
	read := func(i int) error {
		g, ok, err := readers[i].next(ctx, limit)
		if heads[i] = nil; ok {
			heads[i] = &g
		}
		return err
	}
	if len(some) == 1 {
		return read(some[0])
	}
	var g errgroup.Group
	for _, i := range some {
		g.Go(func() error { return read(i) })
	}
	return g.Wait()
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
	begun   bool
}

func newIntersection(readers []reader) reader {
	if len(readers) == 1 {
		return readers[0]
	}
	return &allOf{readers: readers, heads: make([]*group, len(readers))}
}

func (a *allOf) next(ctx context.Context, limit time.Time) (group, bool, error) {
	if !a.begun {
		a.begun = true
		all := make([]int, len(a.readers))
		for i := range all {
			all[i] = i
		}
		if err := readHeads(ctx, limit, a.readers, a.heads, all); err != nil {
			return group{}, false, err
		}
		if slices.Contains(a.heads, nil) {
			return group{}, false, nil
		}
	}
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
