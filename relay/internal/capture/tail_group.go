package capture

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

const (
	// tailMinOverlap is how far back a quick reading looks at least.
	tailMinOverlap = 20 * time.Millisecond
	// tailMaxFailWait bounds the wait after a failed query.
	tailMaxFailWait = 5 * time.Second
	// tailBehind is after how long without a reading there may be a backlog.
	tailBehind = 10 * time.Second
	// tailFewRows is how many rows may be read once more with every query.
	tailFewRows = 20
	// tailHinted is how long a stream that had a hint is expected to have others.
	tailHinted = 10 * time.Second
)

// tailGroup reads some streams of a generation, in one query while they have few
// rows. One goroutine runs it, so no two queries show the rows of a stream in two orders.
//
// Rows do not become visible by their time: writes take a while, retries keep
// their timestamp, clocks differ. So a reading begins before the last one did,
// by an overlap that follows how late rows were seen to come. Every TailOverlap
// a reading goes back all that far; where there are few rows, each does. Where there are
// many rows only some of the readings by hints go back by the overlap (tailQuick).
type tailGroup struct {
	tail       *Tail
	generation *cdclog.Generation
	from, to   int // in generation.streams
	list       *cdclog.StreamList
	all        []int // the streams from from to to
	// width and wideWidth are how many streams the first query of the next reading
	// reads, the latter of one that goes back by TailOverlap.
	width, wideWidth int
	sliceWidth       int         // the same for slices of wide readings
	back             wideReading // in progress
	wideRows         int         // rows of the last wide reading

	// polled is when the last reading of all streams began, zero before the
	// first; deep, when one that went back by the overlap did; wide, when one that went
	// far back did. Times are in microseconds.
	polled, deep, wide int64
	shallow            bool      // the last reading was quick
	due                time.Time // when the next reading was to begin, by this host's clock; zero if now
	// order is nil for a table with numbers. alone says that generations before
	// this one are read to their ends.
	order       *tailOrder
	alone       bool
	next        time.Time    // when all streams are read again
	settled     atomic.Int64 // begin of the last reading after which nothing was held
	covered     atomic.Int64 // settled, of covering readings once the generation has ended
	overlap     int64
	quick       tailQuick
	hinted      map[int]*hintedStream
	seen, older map[cdclog.RowKey]struct{}
	page        tailPage
	turned      int64 // when seen was last turned over
	latency     time.Duration
	interval    time.Duration

	wait   atomic.Int64 // the wait until the next reading
	wake   chan struct{}
	mu     sync.Mutex
	hints  []int // streams with a hint that were not read since
	hinter map[int]struct{}
	// firstHint is when the first of them came.
	firstHint time.Time
}

// hintedStream contains when the last readings by hints of a stream began, of any and of the
// readings that went back by the overlap, and when its last hint was taken; in microseconds.
type hintedStream struct{ polled, deep, at int64 }

func newTailGroup(t *Tail, g *cdclog.Generation, from, to int) *tailGroup {
	var order *tailOrder
	if t.byTime {
		order = &tailOrder{window: t.cfg.TailReorder, counts: make(map[int]*rowCounts)}
	}
	all := make([]int, to-from)
	for i := range all {
		all[i] = from + i
	}
	return &tailGroup{
		all: all, width: GroupStreams, wideWidth: GroupStreams, sliceWidth: GroupStreams, order: order, tail: t, generation: g, from: from, to: to,
		list:   cdclog.NewStreamList(g.Streams[from:to]...),
		hinted: make(map[int]*hintedStream), hinter: make(map[int]struct{}),
		seen: make(map[cdclog.RowKey]struct{}), older: make(map[cdclog.RowKey]struct{}),
		overlap: (50 * time.Millisecond).Microseconds(), quick: newTailQuick(), interval: t.cfg.TailMinInterval,
		wake: make(chan struct{}, 1),
	}
}

// run reads until ctx ends.
func (g *tailGroup) run(ctx context.Context) {
	cfg := g.tail.cfg
	timer, due, slice := time.NewTimer(0), time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer timer.Stop()
	defer due.Stop()
	defer slice.Stop()
	sliced := true                   // slice was reset for no slice
	var timerDue, gathered time.Time // gathered is when hints were last gathered
	for failures := 0; ; {
		var only []int
		kind, hinted := readAll, false
		g.due = time.Time{}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			g.takeHints() // the rows that they announce are visible
			g.due = timerDue
		case <-g.wake:
			if only, kind = g.takeHints(), readHinted; len(only) == 0 {
				continue
			}
			hinted = true
			if 2*len(only) > len(g.all) {
				only, kind = nil, readAll // one query either way, and the next regular one is due later
			}
		case <-due.C:
			only, kind = g.dueAgain(due)
			if len(only) == 0 {
				continue
			}
		case <-slice.C:
			sliced, kind = true, readWide
		}
		if !g.due.IsZero() && g.due.Before(gathered) { // to gather hints is no lag
			g.due = gathered
		}
		wait, err := g.poll(ctx, kind, only)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			g.tail.recordFailure(ctx, err)
			wait = retry.Backoff(cfg.RetryMin, tailMaxFailWait, failures)
			if retry.Wait(ctx, wait) != nil { // hints must not keep a database busy that is in trouble
				return
			}
			timer.Reset(0)
		default:
			failures = 0
			g.tail.recordSuccess()
			if kind == readAll {
				g.wait.Store(int64(wait))
			} else {
				wait = time.Duration(g.overlap) * time.Microsecond // to find what a quick reading missed
			}
			next := g.tail.cfg.Clock.Now().Add(wait)
			if kind == readAll || g.shallow && next.Before(g.next) {
				g.next, timerDue = next, time.Now().Add(wait)
				timer.Reset(wait)
			}
			if hinted {
				if retry.Wait(ctx, g.quick.spacing(g.tail.cfg.TailHintInterval)) != nil {
					return
				}
				gathered = time.Now()
			}
		}
		g.dueAgain(due)
		if sliced && g.back.pending() {
			sliced = false
			slice.Reset(g.back.pause)
		}
	}
}

// hint notes that the stream has rows.
func (g *tailGroup) hint(stream int) {
	g.mu.Lock()
	if _, ok := g.hinter[stream]; !ok {
		if len(g.hints) == 0 {
			g.firstHint = time.Now()
		}
		g.hinter[stream] = struct{}{}
		g.hints = append(g.hints, stream)
	}
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// takeHints returns the streams with a hint that no reading has begun after.
func (g *tailGroup) takeHints() []int {
	g.mu.Lock()
	out := g.hints
	g.hints, g.due = nil, g.firstHint
	clear(g.hinter)
	g.mu.Unlock()
	now := g.tail.cfg.Clock.Now().UnixMicro()
	for _, s := range out {
		h := g.hinted[s]
		if h == nil {
			h = new(hintedStream)
			g.hinted[s] = h
		}
		h.at = now
	}
	return out
}

// dueAgain returns the streams with rows that are held and may go after one more
// reading, and sets the timer for the next.
func (g *tailGroup) dueAgain(timer *time.Timer) ([]int, readingKind) {
	if g.order == nil {
		return nil, readAgain
	}
	now := g.tail.cfg.Clock.Now()
	streams, next := g.order.due(now)
	// Where all streams are read often anyway that will do.
	if least := g.tail.cfg.TailMinInterval; !next.IsZero() && g.next.After(next.Add(least)) {
		timer.Reset(max(next.Sub(now), least))
	}
	return streams, readAgain
}

// poll reads some streams, or all, hands on new rows, and returns the wait
// until all are to be read again.
func (g *tailGroup) poll(ctx context.Context, kind readingKind, only []int) (time.Duration, error) {
	t := g.tail
	waits := time.Now()
	for t.sink.MemoryFull() {
		t.sink.Swept().Waited(time.Now())
		if err := retry.Wait(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	if err := t.cfg.TailLimiter.Wait(ctx); err != nil {
		return 0, err
	}
	found := 0
	if !g.due.IsZero() { // a sweep reader that yields would shorten neither of these waits
		g.due = g.due.Add(time.Since(waits))
	}
	t.cfg.Turns.begin(g, g.due, time.Now())
	defer func() { t.cfg.Turns.end(g, found, time.Now()) }()
	select {
	case t.querying <- struct{}{}:
		defer func() { <-t.querying }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}

	started := t.cfg.Clock.Now()
	now := started.UnixMicro()
	g.turnOver(now)
	if kind == readWide {
		return 0, g.readSlice(ctx)
	}
	last := g.polled
	if kind != readAll {
		last = g.oldestPoll(only)
	}
	// The sweep reader reads older rows immediately.
	reach := started.Add(-t.reach()).UnixMicro()
	if !g.follows(last, reach) {
		return tailNotReady, nil
	}
	last = max(last, reach)
	widely := g.widely(now, kind == readAll)
	since, deep := last, true
	after := last - g.overlap
	if g.order == nil {
		since = g.oldestDeep(only)
		if deep = g.quick.goesDeep(now-since, g.overlap); deep {
			after = since - g.overlap
		} else {
			after = last - g.quick.overlap
		}
	}
	if widely && kind == readAll && g.order == nil && g.wideRows > tailSliceRows {
		widely = false
		if !g.back.pending() {
			g.back = newWideReading(g.wide-t.cfg.TailOverlap.Microseconds(), after, g.wideRows, t.cfg.TailOverlap)
			g.wide = now
		}
	}
	if widely {
		// Rows may have come since the last reading that went so far back.
		after = last - 2*t.cfg.TailOverlap.Microseconds()
	}
	var c cover
	covering, ended := false, false
	if g.order != nil {
		c = cover{g.order.depth(only, now, t.cfg.ConfidenceWindow, 2*t.cfg.TailOverlap), reach, g.overlap}
		if due, _ := g.order.due(started); len(due) > 0 {
			covering = true
			after = g.order.back(only, after, c)
		}
		if ended = kind == readAll && !started.Before(g.order.next) && t.generationEnded(g.generation, started); ended {
			covering = true
			after = min(after, now-c.depth-t.cfg.TailOverlap.Microseconds()) // of a row that became visible since the last one
		}
	}
	after = max(after, g.generation.Start.UnixMicro()-1)

	r := reading{group: g, last: last, deep: last, started: started, regular: kind == readAll, after: after, cover: c}
	if deep {
		r.deep = since
	}
	r.follows = g.order != nil && t.coveredBefore(g.generation, started).Before(started)
	width := &g.width
	if widely {
		width = &g.wideWidth
	}
	if now-last > tailBehind.Microseconds() {
		*width = tailBehindStreams
	}
	next, err := g.readRows(ctx, only, after, 0, *width, &r, func(row *cdclog.Row) error { return r.take(ctx, row) })
	t.metrics.tailQuery(kind, &r)
	found = r.rows
	if err != nil {
		return 0, err
	}
	if kind == readAll {
		*width = next
	}
	g.latency += (r.answered - g.latency) / 8
	g.learn(r.need)
	if covering {
		read := t.cfg.Clock.Now()
		if err := g.handOn(ctx, g.order.take(only, t.coveredBefore(g.generation, started))); err != nil {
			return 0, err
		}
		g.order.next = read.Add(min(3*read.Sub(started), time.Second))
	}
	if g.shallow = !deep; deep {
		g.quick.rows = r.again * int(g.overlap) / int(max(1, now-after)) // the database's clock may be set back
	}
	switch kind {
	case readHinted:
		for _, s := range only {
			h := g.hinted[s]
			if h.polled = now; deep {
				h.deep = now
			}
		}
		return 0, nil
	case readAgain:
		return 0, nil
	}
	if g.polled = now; deep {
		g.deep = now
	}
	if g.order != nil && len(g.order.rows) == 0 {
		g.settled.Store(now)
		if ended {
			g.covered.Store(now)
		}
	}
	if widely {
		g.wide, g.wideRows = now, r.rows+r.again
	}
	if r.unannounced {
		g.interval = t.cfg.TailMinInterval
	} else {
		g.interval = min(max(2*g.interval, t.cfg.TailMinInterval), t.cfg.TailMaxInterval)
	}
	wait := max(g.interval, 2*g.latency)
	if g.shallow {
		wait = min(wait, time.Duration(g.overlap)*time.Microsecond)
	}
	return wait, nil
}

// widely says whether a reading goes back by TailOverlap.
func (g *tailGroup) widely(now int64, all bool) bool {
	return len(g.seen)+len(g.older) <= tailFewRows || all && now-g.wide >= g.tail.cfg.TailOverlap.Microseconds()
}

// learn adapts the overlap to how late rows were: at once to more, slowly to less.
func (g *tailGroup) learn(need int64) {
	most := g.tail.cfg.TailOverlap.Microseconds() / 4
	if want := need + need/2 + 5000; need > 0 && want > g.overlap {
		g.overlap = min(want, most)
		return
	}
	g.overlap = max(g.overlap-g.overlap/1000, min(tailMinOverlap.Microseconds(), most))
}

// turnOver forgets rows that no reading shows again.
func (g *tailGroup) turnOver(now int64) {
	after := 3 * g.tail.cfg.TailOverlap
	if g.order != nil {
		after = max(after, g.tail.cfg.ConfidenceWindow) // covering readings reach that far
	}
	if now-g.turned >= after.Microseconds() || len(g.seen) >= 50_000 {
		g.turned = now
		g.seen, g.older = g.older, g.seen
		clear(g.seen)
	}
}

// listStreams is the list of streams with hints.
func (g *tailGroup) listStreams(hinted []int) *cdclog.StreamList {
	ids := make([][]byte, len(hinted))
	for i, s := range hinted {
		ids[i] = g.generation.Streams[s]
	}
	return cdclog.NewStreamList(ids...)
}

// oldestPoll is when the one of the streams that was read longest ago was.
func (g *tailGroup) oldestPoll(hinted []int) int64 {
	last := int64(0)
	for i, s := range hinted {
		at := g.polled
		if h := g.hinted[s]; h != nil {
			at = max(at, h.polled)
		}
		if i == 0 || at < last {
			last = at
		}
	}
	return last
}

// oldestDeep returns when the last reading began that went back by the overlap, of the one of the
// streams of which that was longest ago; of all without any.
func (g *tailGroup) oldestDeep(streams []int) int64 {
	if streams == nil {
		return g.deep
	}
	last := int64(math.MaxInt64)
	for _, s := range streams {
		last = min(last, max(g.deep, g.hinted[s].deep))
	}
	return last
}

// hasHints says whether the stream's writer sends hints.
func (g *tailGroup) hasHints(stream []byte, now int64) bool {
	if len(g.hinted) == 0 {
		return false
	}
	h := g.hinted[g.generation.Index(stream)]
	return h != nil && now-h.at < tailHinted.Microseconds()
}

// reading is one reading of some streams and its results.
type reading struct {
	group       *tailGroup
	last, after int64
	deep        int64 // when the last reading began that went back as far
	cover       cover // where order is kept by time
	started     time.Time
	follows     bool // rows of earlier generations may still become visible
	regular     bool
	answered    time.Duration // until the first row
	rows, again int
	queries     int
	need        int64 // by how much the oldest new row is older than the last reading that went back as far
	unannounced bool  // there was a row that no hint would have told of
}

// answer notes that the database has answered. What follows is the time that
// handing on takes.
func (r *reading) answer() {
	if r.answered == 0 {
		r.answered = r.group.tail.cfg.Clock.Now().Sub(r.started)
	}
}

// known says whether the row was read before.
func (r *reading) known(k cdclog.RowKey) bool {
	r.answer()
	g := r.group
	_, known := g.seen[k]
	if !known {
		_, known = g.older[k]
	}
	if known {
		r.again++
	}
	return known
}

// take hands on a row, unless it is of no interest.
func (r *reading) take(ctx context.Context, row *cdclog.Row) error {
	g, t := r.group, r.group.tail
	g.seen[row.RowKey] = struct{}{}
	r.rows++
	if !row.Insert {
		return nil
	}
	written, now := cdclog.WriteTime(row.Time), r.started.UnixMicro()
	if r.regular && !r.unannounced {
		r.unannounced = !g.hasHints(row.Stream, now)
	}
	if g.polled > 0 {
		r.need = max(r.need, r.deep-written)
		g.quick.learn(r.last-written, g.overlap)
	}
	if written < now-t.cfg.ConfidenceWindow.Microseconds()/2 {
		if upTo, ok := t.streams.Handed(g.generation.Start, row.Stream); ok && written <= upTo {
			return nil // the sweep was here, and its id may be evicted
		}
	}
	if row.Err != nil && !g.identifies(row) {
		t.metrics.TailLeft.Inc()
		t.log.Debug("tail leaves a row that cannot be read to the sweep", "time", row.Time.Time(), "err", row.Err)
		if g.order != nil && !row.Event.AggregateID.IsZero() {
			t.left.add(row.Event.AggregateID.UUID(), g.generation.Start, g.generation.Streams[g.generation.Index(row.Stream)], written)
		}
		return nil
	}
	if g.order != nil {
		h := heldRow{RowKey: row.RowKey, stream: g.generation.Index(row.Stream), event: row.Event, bad: row.Err, written: written}
		g.order.saw(h.stream, written, t.cfg.ConfidenceWindow)
		h.before, _ = t.sink.Expect(row.Event.AggregateID.UUID())
		if g.order.holds(written, h.before, r.started, r.after, t.cfg.TailOverlap, r.cover) || r.follows {
			return g.keep(ctx, h)
		}
		return g.handOn(ctx, []heldRow{h})
	}
	return g.offer(ctx, publish.Offer{Event: row.Event, Written: written, By: publish.ByTail}, g.generation.Index(row.Stream))
}

// maxTailPage is the number of rows that are offered together. They wait for each other.
const maxTailPage = 256

// tailPage contains rows of a query that are not offered yet.
type tailPage struct {
	offers   []publish.Offer
	streams  []int // of the offers
	verdicts []publish.Verdict
}

// offer adds a row to the page, and submits the page if it is full.
func (g *tailGroup) offer(ctx context.Context, o publish.Offer, stream int) error {
	p := &g.page
	p.offers, p.streams = append(p.offers, o), append(p.streams, stream)
	if len(p.offers) < maxTailPage {
		return nil
	}
	return g.offerPage(ctx)
}

// offerPage submits the rows that were read and not offered yet. After an error the later ones are
// left to the sweep reader.
func (g *tailGroup) offerPage(ctx context.Context) (err error) {
	t, p := g.tail, &g.page
	if len(p.offers) == 0 {
		return nil
	}
	p.verdicts, err = t.sink.OfferPage(ctx, p.offers, p.verdicts[:0])
	for i, v := range p.verdicts {
		e := &p.offers[i].Event
		switch v {
		case publish.Ahead, publish.Unknown, publish.Claimed:
			stream := g.generation.Streams[p.streams[i]]
			t.gaps.await(ctx, e, func() (int64, bool) { return t.streams.Began(g.generation.Start, stream) })
		case publish.Left:
			t.leave(e.AggregateID.UUID())
		}
	}
	clear(p.offers)
	p.offers, p.streams = p.offers[:0], p.streams[:0]
	return err
}
