package capture

import (
	"context"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// tailSliceRows is how many rows a slice of a wide reading has.
const tailSliceRows = 500

// wideReading is the part of a reading that goes back by TailOverlap which is still to be read.
// Where that is many rows they are read in slices of time, the oldest first, and hints are
// served between two slices: one query for all delays them by 100 ms at 5,000 rows/s.
//
// The readings begin every TailOverlap. Each one reads, from its begin on, all that was written
// since TailOverlap before the begin of the one before. So a row that becomes visible at most
// TailOverlap after it was written is found by the first one that begins after that.
type wideReading struct {
	from, to int64 // write times in microseconds, exclusive and inclusive
	step     int64 // of a slice
	pause    time.Duration
	rows     int // so far
}

// newWideReading reads the rows that were written after from and up to to, about as many
// rows as given, within half of every.
func newWideReading(from, to int64, rows int, every time.Duration) wideReading {
	slices := int64(rows/tailSliceRows + 1)
	return wideReading{from: from, to: to, step: max((to-from)/slices+1, 1), pause: every / time.Duration(2*slices)}
}

// pending reports whether there is more to read.
func (w *wideReading) pending() bool { return w.from < w.to }

// readSlice reads the next slice of the group's wide reading.
func (g *tailGroup) readSlice(ctx context.Context) error {
	t, w := g.tail, &g.back
	started := t.cfg.Clock.Now()
	until := min(w.from+w.step, w.to)
	// The sweep reader reads older rows immediately.
	after := max(w.from, started.Add(-t.reach()).UnixMicro(), g.generation.Start.UnixMicro()-1)
	if after < until {
		r := reading{group: g, last: g.polled, deep: g.deep, started: started, after: after}
		next, err := g.readRows(ctx, nil, after, until, g.sliceWidth, &r, func(row *cdclog.Row) error { return r.take(ctx, row) })
		t.metrics.tailQuery(readWide, &r)
		if err != nil {
			return err
		}
		g.sliceWidth = next
		g.learn(r.need)
		w.rows += r.rows + r.again
	}
	if w.from = until; !w.pending() {
		g.wideRows = w.rows
	}
	return nil
}
