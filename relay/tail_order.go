package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// maxTailHeld is how many rows a group holds. Beyond it they go out earlier than
// they should: memory is bounded first.
const maxTailHeld = 10_000

// tailNotReady is how long the tail waits until it looks again whether the sweep
// has come to where it would begin.
const tailNotReady = 50 * time.Millisecond

// tailOrder keeps the order of a table without numbers in one group of streams,
// where no number says what is missing before a row.
//
// A row is held for the window after it was seen, and then until a reading that
// began after that and goes back far enough has ended. So an earlier row of its
// aggregate that became visible in the meantime has been seen too and goes first;
// both are in one stream. Only the relay's own clock decides how long. The
// group's goroutine alone uses it.
type tailOrder struct {
	window time.Duration
	rows   []heldRow
}

// heldRow is a row that was seen.
type heldRow struct {
	logKey
	stream  int
	event   outbox.Event
	written int64
	seen    time.Time
}

func (h heldRow) compare(o heldRow) int {
	return cmp.Or(cmp.Compare(h.stream, o.stream), scyllacdc.CompareTimeUUID(h.time, o.time), cmp.Compare(h.seq, o.seq))
}

// holds says whether a row is to be held that was written at the given time, in
// microseconds. One that is older than the longest overlap of readings is not:
// what comes that late is nothing to wait for, and after a pause there are many.
func (o *tailOrder) holds(written int64, now time.Time, overlap time.Duration) bool {
	return o.window > 0 && written >= now.Add(-max(o.window, overlap)).UnixMicro()
}

// back is where a reading has to begin to let go of the rows that are held, in
// microseconds; at most after.
func (o *tailOrder) back(after, overlap int64) int64 {
	for i := range o.rows {
		after = min(after, o.rows[i].written-o.window.Microseconds()-overlap)
	}
	return after
}

// due returns the streams of which a row has been held for long enough, and when
// the next will have been; zero if none is held.
func (o *tailOrder) due(now time.Time) (streams []int, next time.Time) {
	for i := range o.rows {
		at := o.rows[i].seen.Add(o.window)
		if !at.After(now) {
			streams = append(streams, o.rows[i].stream)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	slices.Sort(streams)
	return slices.Compact(streams), next
}

// take takes the rows that a reading lets go of which began at the given time and
// read some of the streams, or all without any; in the order of each stream. A
// row that may go takes those before it along, however late they came.
func (o *tailOrder) take(streams []int, began time.Time) []heldRow {
	slices.SortStableFunc(o.rows, heldRow.compare)
	var out, left []heldRow
	for from := 0; from < len(o.rows); {
		to := from
		last := from // rows up to it go
		for ; to < len(o.rows) && o.rows[to].stream == o.rows[from].stream; to++ {
			if !o.rows[to].seen.Add(o.window).After(began) {
				last = to + 1
			}
		}
		if streams != nil && !slices.Contains(streams, o.rows[from].stream) {
			last = from
		}
		out, left = append(out, o.rows[from:last]...), append(left, o.rows[last:to]...)
		from = to
	}
	o.rows = left
	return out
}

// keep holds a row.
func (g *tailGroup) keep(ctx context.Context, row *tailRow, written int64) error {
	if len(g.order.rows) >= maxTailHeld {
		if err := g.handOn(ctx, g.order.take(nil, time.Now().Add(g.order.window))); err != nil {
			return err
		}
	}
	g.order.rows = append(g.order.rows, heldRow{
		logKey: row.logKey, stream: g.generation.index(row.stream), event: row.event, written: written, seen: time.Now(),
	})
	return nil
}

// handOn hands on rows that were held. What it does not come to is the sweep's.
func (g *tailGroup) handOn(ctx context.Context, rows []heldRow) error {
	for i := range rows {
		v, err := g.tail.publisher.offer(ctx, &offer{event: rows[i].event, written: rows[i].written, by: byTail})
		if err != nil {
			return err
		}
		if v == left {
			g.tail.publisher.leave(rows[i].event.AggregateID)
		}
	}
	return nil
}

// follows says whether a reading that goes back to reach leaves nothing out: what
// is before it was handed on, or was seen in the last reading; 0 if there was
// none. Times are in microseconds. Where numbers tell what is missing nobody
// needs to know; without, a reading must not begin anywhere else.
func (g *tailGroup) follows(last, reach int64) bool {
	if g.order == nil {
		return true
	}
	if !g.alone {
		if !g.tail.readBefore(g.generation) {
			return false
		}
		g.alone = true
	}
	if reach <= max(last, g.generation.start.UnixMicro()) {
		return true
	}
	for _, stream := range g.generation.streams[g.from:g.to] {
		if upTo, ok := g.tail.streams.handed(g.generation.start, stream); !ok || upTo < reach {
			return false
		}
	}
	return true
}

// readBefore says whether everything in the generations before g was handed on,
// but for what is later than any ordinary row: an aggregate's events go on in
// another stream when a generation begins.
func (t *tail) readBefore(g *generation) bool {
	swept, _, _ := t.streams.handedAll()
	edge := g.start.Add(t.cfg.TailOverlap).UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for _, before := range t.known {
		found = found || before.start.Equal(swept)
		if !before.start.Before(g.start) || swept.After(before.start) {
			continue
		}
		if len(t.running[before]) == 0 {
			return false
		}
		for _, group := range t.running[before] {
			if group.settled.Load() < edge {
				return false
			}
		}
	}
	return found
}

// reach is how far back the tail goes when it begins: to where the sweep is.
func (t *tail) reach() time.Duration {
	if t.byTime {
		return t.cfg.ConfidenceWindow + tailMargin + t.cfg.IdleDelay + t.cfg.BusyDelay
	}
	return t.cfg.ConfidenceWindow + tailMargin
}
