package dlq

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
)

// reader reads the entries of every dead letter that may match f, at a pace.
func (ls *lists) reader(f *Filter, p pace) reader {
	var all []reader
	add := func(kind []string, values ...string) {
		var some []reader
		for _, k := range kind {
			for _, v := range values {
				sh := &listReader{lists: ls, list: listKey{k, v}, since: f.Since, until: f.Until, pace: p}
				if sh.since.IsZero() {
					sh.since = time.Unix(0, 0).UTC()
				}
				if sh.until.IsZero() {
					sh.until = latest
				}
				some = append(some, sh)
			}
		}
		all = append(all, newUnion(some))
	}
	if f.Aggregate != "" {
		add([]string{kindAggregate}, f.Aggregate)
		return newIntersection(all) // short enough
	}
	open, done := len(f.Status) == 0, len(f.Status) == 0
	for _, st := range f.Status {
		open, done = open || st.Open(), done || !st.Open()
	}
	both := func(openKind, doneKind string) (kinds []string) {
		if open {
			kinds = append(kinds, openKind)
		}
		if done {
			kinds = append(kinds, doneKind)
		}
		return kinds
	}
	if f.ErrorClass != "" {
		add(both(kindOpenClass, kindDoneClass), f.ErrorClass)
	}
	if f.EventType != "" {
		add(both(kindOpenType, kindDoneType), f.EventType)
	}
	if f.Table != "" {
		add(both(kindOpenTable, kindDoneTable), f.Table)
	}
	for _, t := range f.Tags {
		add(both(kindOpenTag, kindDoneTag), t)
	}
	if len(f.Status) > 0 || len(all) == 0 {
		var values []string
		for _, st := range f.Status {
			values = append(values, string(st))
		}
		if len(values) == 0 {
			for _, st := range Statuses {
				values = append(values, string(st))
			}
		}
		add([]string{kindStatus}, values...)
	}
	return newIntersection(all)
}

const (
	// firstLookup is the number of dead letters in the first read, so that a short
	// listing reads little.
	firstLookup = 20
	maxLookup   = 100
	// perMatch is how many dead letters are read for each that a caller waits for, with a filter
	// of which there are no lists.
	perMatch = 10
)

// listing collects entries and reads their dead letters.
type listing struct {
	s    *Store
	f    *Filter
	each func(*DeadLetter) error
	rows []row
	ids  []gocql.UUID // of rows
	// size is the number of dead letters of the next read, and most that of a later one.
	size, most int
	texts      bool // read the codes and texts of errors, too
}

func (l *listing) add(ctx context.Context, g group) error {
	sortByEvent(g.rows)
	after := l.f.After
	for _, r := range g.rows {
		if r.at.Equal(after.FirstFailedAt) && bytes.Compare(r.event[:], after.EventID[:]) <= 0 {
			continue
		}
		if n := len(l.ids); n == 0 || l.ids[n-1] != r.event {
			if n >= l.size {
				if err := l.flush(ctx); err != nil {
					return err
				}
				l.size = min(2*l.size, l.most)
			}
			l.ids = append(l.ids, r.event)
		}
		l.rows = append(l.rows, r)
	}
	return nil
}

// flush calls each for the dead letters of the rows that match.
func (l *listing) flush(ctx context.Context) error {
	rows, ids := l.rows, l.ids
	l.rows, l.ids = l.rows[:0], l.ids[:0]
	if len(rows) == 0 {
		return nil
	}
	deadLetters, err := l.read(ctx, ids)
	if err != nil {
		return err
	}
	var last gocql.UUID
	for i, r := range rows {
		deadLetter, ok := deadLetters[r.event]
		if !ok {
			continue // about to be stored, or never
		}
		stored := deadLetter.FirstFailedAt.Equal(r.at)
		if !stored || !slices.Contains(listKeys(&deadLetter), r.list) {
			l.s.lists.drop(ctx, listed{&DeadLetter{EventID: r.event, FirstFailedAt: r.at, Version: deadLetter.Version}, []listKey{r.list}, false})
		}
		if !stored || i > 0 && last == r.event || !l.f.matches(&deadLetter) {
			continue
		}
		last = r.event
		if err := l.each(&deadLetter); err != nil {
			return err
		}
	}
	return nil
}

// read reads dead letters and, concurrently, the codes and texts of their errors.
func (l *listing) read(ctx context.Context, ids []gocql.UUID) (deadLetters map[gocql.UUID]DeadLetter, err error) {
	if !l.texts {
		return l.s.ReadMany(ctx, ids)
	}
	var texts map[gocql.UUID]ErrorText
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { deadLetters, err = l.s.ReadMany(gctx, ids); return err })
	g.Go(func() (err error) { texts, err = l.s.ErrorTexts(gctx, ids); return err })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for id, t := range texts {
		if d, ok := deadLetters[id]; ok {
			d.ErrorCode, d.ErrorText = t.Code, t.Text
			deadLetters[id] = d
		}
	}
	return deadLetters, nil
}
