package capture

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

const (
	// tailWider is by what factor a query may have more streams than the one before it.
	tailWider = 4
	// tailBehindStreams is how many streams the first query reads where there may be a backlog.
	tailBehindStreams = 1
)

// readRows reads some streams of the group, or all without any, and calls each for the
// rows that are not known. For each page that a query of several streams returns the
// database reads up to a page of every stream and discards the rest. So a query reads as
// many streams as have rows for most of one page: the whole group while it has few rows,
// one stream in a backlog. It returns how many streams a query of the next reading should read.
// The rows were written after after, and at until or before, which may be 0.
func (g *tailGroup) readRows(ctx context.Context, only []int, after, until int64, width int, r *reading, each func(*cdclog.Row) error) (int, error) {
	rest := only
	if rest == nil {
		rest = g.all
	}
	streams, page, total := len(rest), cdclog.PageSize, 0
	for len(rest) > 0 {
		part := rest[:min(width, len(rest))]
		rest = rest[len(part):]
		list := g.list
		if only != nil || len(part) < len(g.all) {
			list = g.listStreams(part)
		}
		if r.queries++; r.queries > 1 {
			if err := g.tail.cfg.TailLimiter.Wait(ctx); err != nil {
				return 0, err
			}
		}
		q := pageRead{}
		more, err := g.tail.rows.Read(ctx, list, after, until, len(part) == 1, func(stream []byte, k cdclog.RowKey) bool {
			q.row(stream)
			return r.known(k)
		}, each)
		r.answer()
		if err = cmp.Or(g.offerPage(ctx), err); err != nil {
			return 0, err
		}
		total += q.rows
		if !more {
			width = widthFor(len(part), q.rows, page)
			continue
		}
		// The streams before the last one of the page are complete. The last one is read
		// again from its beginning, with the streams that did not appear.
		page = min(page, q.rows) // the database also limits the bytes of a page
		width = max(1, len(q.streams)*3/4)
		rest = slices.Concat(q.left(g.generation, part), rest)
	}
	return widthFor(streams, total, page), nil
}

// widthFor returns how many streams the next query reads after one of k streams with so
// many rows: as many as have rows for three quarters of a page.
func widthFor(k, rows, page int) int {
	return max(1, min(k*tailWider, k*page*3/4/max(1, rows), GroupStreams))
}

// pageRead is what one query returned.
type pageRead struct {
	rows    int
	streams [][]byte // in the order in which they appeared
}

// row counts a row.
func (q *pageRead) row(stream []byte) {
	q.rows++
	if n := len(q.streams); n == 0 || !bytes.Equal(q.streams[n-1], stream) {
		q.streams = append(q.streams, bytes.Clone(stream))
	}
}

// left returns the streams of a query that are incomplete after its first page, the one
// that the page cuts first.
func (q *pageRead) left(g *cdclog.Generation, part []int) []int {
	cut := max(0, len(q.streams)-1)
	var left []int
	for _, s := range part {
		id := g.Streams[s]
		switch i := slices.IndexFunc(q.streams, func(o []byte) bool { return bytes.Equal(o, id) }); {
		case i == cut:
			left = slices.Insert(left, 0, s)
		case i < 0:
			left = append(left, s)
		}
	}
	return left
}
