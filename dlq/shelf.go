package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// row is an entry of a shelf: where a letter stands, or stood.
type row struct {
	at    time.Time
	event gocql.UUID
	shelf shelf
}

// group are the entries of one millisecond. Within it the database orders ids
// in its own way, so whole groups are compared.
type group struct {
	at   time.Time
	rows []row
}

// reader reads shelves from new to old, a millisecond at a time.
type reader interface {
	// next returns the newest group that is not after limit and older than those
	// returned before; ok is false at the end.
	next(ctx context.Context, limit time.Time) (g group, ok bool, err error)
	close()
}

// shelfReader reads one shelf from until, exclusive, down to since.
type shelfReader struct {
	s            *Store
	shelf        shelf
	since, until time.Time

	opened  bool
	buckets []time.Time // not begun, newest first
	iter    *gocql.Iter // of a bucket; nil before one is begun
	bucket  time.Time   // of iter
	ahead   row         // read and not returned
	have    bool
	passed  int // rows passed over since iter began
}

// maxPassed is how many rows are passed over before a query begins further down.
const maxPassed = 500

// shelfPage is how many rows one answer holds.
const shelfPage = 1000

func (r *shelfReader) next(ctx context.Context, limit time.Time) (group, bool, error) {
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
func (r *shelfReader) advance(ctx context.Context, limit time.Time) error {
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
		if r.iter != nil && (r.passed > maxPassed || r.shelf.kind != kindAggregate && r.bucket.After(limit)) {
			// Far above the limit: begin again there.
			if !r.bucket.After(limit) {
				r.buckets = slices.Insert(r.buckets, 0, r.bucket)
			}
			if err := r.end(); err != nil {
				return err
			}
		}
		if r.iter == nil {
			for len(r.buckets) > 0 && r.buckets[0].After(limit) {
				r.buckets = r.buckets[1:]
			}
			if len(r.buckets) == 0 {
				return nil
			}
			r.begin(ctx, r.buckets[0], limit)
			r.buckets = r.buckets[1:]
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
func (r *shelfReader) open(ctx context.Context) error {
	r.opened = true
	if r.shelf.kind == kindAggregate {
		r.buckets = []time.Time{r.shelf.bucketOf(r.until)}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.s.timeout)
	defer cancel()
	iter := r.s.selects(ctx, r.s.stmt.buckets, r.shelf.kind, r.shelf.value, r.shelf.bucketOf(r.since), r.until).Prefetch(0).Iter()
	var b time.Time
	for iter.Scan(&b) {
		r.buckets = append(r.buckets, b)
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read which lists of %s %s there are: %w", r.shelf.kind, r.shelf.value, err)
	}
	return nil
}

func (r *shelfReader) begin(ctx context.Context, bucket, limit time.Time) {
	until := r.until
	if below := limit.Add(time.Millisecond); below.Before(until) {
		until = below
	}
	r.bucket, r.passed = bucket, 0
	r.iter = r.s.selects(ctx, r.s.stmt.lookups, r.shelf.kind, r.shelf.value, bucket, r.since, until).
		Idempotent(true).PageSize(shelfPage).Prefetch(0).Iter()
}

func (r *shelfReader) scan() bool {
	r.have = r.iter.Scan(&r.ahead.at, &r.ahead.event)
	r.ahead.shelf = r.shelf
	return r.have
}

func (r *shelfReader) end() error {
	err := r.iter.Close()
	r.iter = nil
	if err != nil {
		return fmt.Errorf("read the list of %s %s: %w", r.shelf.kind, r.shelf.value, err)
	}
	return nil
}

func (r *shelfReader) close() {
	if r.iter != nil {
		_ = r.iter.Close() // nobody wants to know any more
		r.iter = nil
	}
}

// anyOf reads what is on any of several shelves.
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

// allOf reads what is on each of several shelves. Of a letter it returns a row
// for every shelf.
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
				i = -1 // those before it have nothing that new to offer
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
	in := make(map[gocql.UUID]int) // in how many groups, counted from the first on
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
