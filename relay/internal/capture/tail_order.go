package capture

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// maxTailHeld is the maximum number of rows that a group holds. Beyond it they are
// submitted early, because the memory bound takes precedence.
const maxTailHeld = 10_000

// tailNotReady is the interval between checks whether the sweep reader has reached the
// start of the tail reader.
const tailNotReady = 50 * time.Millisecond

// tailDeepRows is the maximum number of rows that a reading rereads, beyond twice
// TailOverlap, to release held rows.
const tailDeepRows = 1000

// tailOrder keeps the order of a table without numbers in one group of streams,
// where no number shows which rows are missing before a row.
//
// A row is held for the window after it was seen, and then until a covering reading
// has ended: one that began after that and reads again everything from which an
// earlier row of its aggregate could come. Both rows are in one stream, so an earlier
// row that became visible before this one was written is returned by that reading and
// goes first: the order of a writer that awaits each acknowledgement holds as far back
// as readings reach. That is the last row of the aggregate, else the confidence window,
// or what tailDeepRows allow in busy streams, at least twice TailOverlap. Only the
// relay's own clock decides how long rows are held. The group's goroutine alone uses it.
type tailOrder struct {
	window time.Duration
	rows   []heldRow
	counts map[int]*rowCounts
	// next is when a covering reading may begin: they take at most a quarter of the time.
	next time.Time
}

// heldRow is a row that was read and not yet submitted.
type heldRow struct {
	cdclog.RowKey
	stream  int
	event   outbox.Event
	bad     error // why the row is not a valid event, nil if it is
	written int64
	before  int64 // write time of the last row of its aggregate that was handed on, 0 if unknown
	seen    time.Time
}

// cover contains how far back a reading has to reach to release a row, in microseconds.
type cover struct {
	depth   int64 // before the row
	floor   int64 // write time up to which the sweep reader has handed on everything
	overlap int64 // before the row's window, for writers that do not await each other
}

// from is where a reading has to begin to let go of a row.
func (c cover) from(written, before int64, window time.Duration) int64 {
	return min(max(written-c.depth, before, c.floor), written-window.Microseconds()-c.overlap)
}

// rowCounts are the rows of a stream by write time, over a little more than the
// confidence window.
type rowCounts struct {
	newest int64
	n      [countBins + 1]int32
}

const countBins = 16

func (c *rowCounts) add(bin int64) {
	if bin > c.newest {
		for b := max(c.newest+1, bin-countBins); b <= bin; b++ {
			c.n[b%(countBins+1)] = 0
		}
		c.newest = bin
	}
	if bin > c.newest-countBins {
		c.n[bin%(countBins+1)]++
	}
}

// at returns the number of rows of a bin.
func (c *rowCounts) at(bin int64) int {
	if bin > c.newest || bin <= c.newest-countBins {
		return 0
	}
	return int(c.n[bin%(countBins+1)])
}

func (h heldRow) compare(o heldRow) int {
	return cmp.Or(cmp.Compare(h.stream, o.stream), scyllacdc.CompareTimeUUID(h.Time, o.Time), cmp.Compare(h.Seq, o.Seq))
}

// holds reports whether a row is to be held that was written at the given time, in
// microseconds, and read by a reading that began now and at after. It is not if that
// reading covers it: then every earlier row was visible when the reading began.
func (o *tailOrder) holds(written, before int64, now time.Time, after int64, overlap time.Duration, c cover) bool {
	if o.window <= 0 {
		return false
	}
	return written >= now.Add(-max(o.window, overlap)).UnixMicro() || after > max(written-c.depth, before, c.floor)
}

// back is where a covering reading of some streams, or all without any, has to begin,
// in microseconds; at most after.
func (o *tailOrder) back(streams []int, after int64, c cover) int64 {
	for i := range o.rows {
		if r := &o.rows[i]; streams == nil || slices.Contains(streams, r.stream) {
			after = min(after, c.from(r.written, r.before, o.window))
		}
	}
	return after
}

// saw counts a row of a stream.
func (o *tailOrder) saw(stream int, written int64, window time.Duration) {
	c := o.counts[stream]
	if c == nil {
		c = new(rowCounts)
		o.counts[stream] = c
	}
	c.add(written / binWidth(window))
}

func binWidth(window time.Duration) int64 { return max(1, window.Microseconds()/countBins) }

// depth is how far back readings of some streams, or all without any, reach, in
// microseconds: the window, or less where that would read too many rows again.
func (o *tailOrder) depth(streams []int, now int64, window, least time.Duration) int64 {
	bin, rows := binWidth(window), 0
	for back := range int64(countBins) {
		for s, c := range o.counts {
			if streams == nil || slices.Contains(streams, s) {
				rows += c.at(now/bin - back)
			}
		}
		if rows > tailDeepRows {
			return max(back*bin, least.Microseconds())
		}
	}
	return max(window, least).Microseconds()
}

// due returns the streams of which a row has been held for long enough, and when
// the next will have been; zero if none is held.
func (o *tailOrder) due(now time.Time) (streams []int, next time.Time) {
	for i := range o.rows {
		at := o.rows[i].seen.Add(o.window)
		if at.Before(o.next) {
			at = o.next
		}
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

// identifies reports whether a row that is not a valid event may be passed on in its place in the
// order of its aggregate, to be refused there: the sweep reader will show it with the same id, and
// refuse it too. With numbers the later rows wait for it anyway.
func (g *tailGroup) identifies(row *cdclog.Row) bool {
	bad, ok := errors.AsType[*rows.RowError](row.Err)
	return ok && !bad.Mismatch && g.order != nil && !row.Event.ID.IsZero() && !row.Event.AggregateID.IsZero()
}

// keep holds a row that was read.
func (g *tailGroup) keep(ctx context.Context, h heldRow) error {
	if len(g.order.rows) >= maxTailHeld {
		if err := g.handOn(ctx, g.order.take(nil, g.tail.cfg.Clock.Now().Add(g.order.window))); err != nil {
			return err
		}
	}
	h.seen = g.tail.cfg.Clock.Now()
	g.order.rows = append(g.order.rows, h)
	return nil
}

// handOn submits released rows, unless an earlier one of their aggregate is left to the sweep reader.
// Rows after an error are left to the sweep reader.
func (g *tailGroup) handOn(ctx context.Context, rows []heldRow) error {
	t := g.tail
	for i := range rows {
		h := &rows[i]
		if t.left.follows(h.event.AggregateID.UUID(), g.generation.Start, g.generation.Streams[h.stream], h.written) {
			t.leave(h.event.AggregateID.UUID())
			continue
		}
		if err := g.offer(ctx, publish.Offer{Event: h.event, Written: h.written, Bad: h.bad, By: publish.ByTail}, h.stream); err != nil {
			return err
		}
	}
	return g.offerPage(ctx)
}

// follows reports whether a reading that goes back to reach leaves nothing out: the rows
// before it were handed on, or were seen in the last reading; 0 if there was none. Times
// are in microseconds. Where numbers show missing rows it is always true; otherwise a
// reading must not begin anywhere else.
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
	if reach <= max(last, g.generation.Start.UnixMicro()) {
		return true
	}
	for _, stream := range g.generation.Streams[g.from:g.to] {
		if upTo, ok := g.tail.streams.Handed(g.generation.Start, stream); !ok || upTo < reach {
			return false
		}
	}
	return true
}

// readBefore reports whether all rows of the generations before g were handed on, except
// rows later than any ordinary one: an aggregate's events continue in another stream when a
// generation begins.
func (t *Tail) readBefore(g *cdclog.Generation) bool {
	swept, _, _ := t.streams.HandedAll()
	edge := g.Start.Add(t.cfg.TailOverlap).UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for _, before := range t.known {
		found = found || before.Start.Equal(swept)
		if !before.Start.Before(g.Start) || swept.After(before.Start) {
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

// generationEnded reports whether a generation after g has begun.
func (t *Tail) generationEnded(g *cdclog.Generation, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.known, func(k *cdclog.Generation) bool { return k.Start.After(g.Start) && !k.Start.After(now) })
}

// coveredBefore returns by when a row of g must have been seen to be handed on after a
// reading that began at the given time. A writer may continue in g as soon as its last row
// of an earlier generation is visible, however late that is, so each group that still
// reads one must have begun a covering reading after it.
func (t *Tail) coveredBefore(g *cdclog.Generation, began time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for before, groups := range t.running {
		if !before.Start.Before(g.Start) {
			continue
		}
		for _, group := range groups {
			if at := time.UnixMicro(group.covered.Load()); at.Before(began) {
				began = at
			}
		}
	}
	return began
}

// reach returns how far back the tail reader starts: at the sweep reader's position.
func (t *Tail) reach() time.Duration {
	if t.byTime {
		return t.cfg.ConfidenceWindow + tailMargin + t.cfg.IdleDelay + t.cfg.BusyDelay
	}
	return t.cfg.ConfidenceWindow + tailMargin
}
