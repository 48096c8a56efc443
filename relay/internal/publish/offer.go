package publish

import (
	"context"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Source is the reader that found an event.
type Source uint8

const (
	// BySweep is the sweep reader, which moves the checkpoint and reads every row of the log.
	BySweep Source = iota
	// ByTail is the tail reader. The sweep reader offers the events that it skips.
	ByTail
	// ByKey is a read of the outbox table by key.
	ByKey
	// ByBackfill is a scan of the outbox table.
	ByBackfill
	// byUnknown is the source of a dead letter whose metadata lacks it.
	byUnknown
)

// Verdict is the result of an offer.
type Verdict uint8

const (
	// Taken: the event is accepted.
	Taken Verdict = iota
	// Repeated: the event is in progress or published; it is settled when it is acknowledged.
	Repeated
	// Ahead: earlier events of its aggregate are missing.
	Ahead
	// Unknown: its aggregate is unknown and it is not the first event.
	Unknown
	// Claimed: another caller fills a gap of its aggregate.
	Claimed
	// Left: later events of its aggregate were accepted. It is late, or was published,
	// forgotten and written again: the sweep reader proves which.
	Left
)

// Settler receives the settlements of offered events.
type Settler interface {
	// Settle is called once for each offer, by the driver or from Offer, when the event is
	// acknowledged or stored as a dead letter. It must not call the Publisher.
	Settle(id uint64)
}

// Settlement is where the settlement of an offer goes, nowhere if it is zero.
type Settlement struct {
	To Settler
	ID uint64
}

// OnSettled is a settlement that calls f, which must not call the Publisher; nil is no settlement.
func OnSettled(f func()) Settlement {
	if f == nil {
		return Settlement{}
	}
	return Settlement{To: settleFunc(f)}
}

type settleFunc func()

func (f settleFunc) Settle(uint64) { f() }

// Settle tells the settler.
func (s Settlement) Settle() {
	if s.To != nil {
		s.To.Settle(s.ID)
	}
}

// Offer is an event to be published.
type Offer struct {
	Event   outbox.Event
	Written int64 // write time in microseconds, 0 if unknown
	By      Source
	// Bad is the reason why the row is not a valid event; nil if it is valid.
	Bad error
	// Owner reports that the caller has claimed the aggregate.
	Owner bool
	// Anyway publishes the event although an earlier one is missing.
	Anyway bool
	// Missing reports that the event's topic was read and does not contain it: its
	// number proves nothing.
	Missing bool
	// Again reports that the relay has published the event, and its topic has lost it.
	Again   bool
	Settled Settlement
}

// Offer is OfferPage of one event.
func (p *Publisher) Offer(ctx context.Context, o Offer) (Verdict, error) {
	v, err := p.OfferPage(ctx, []Offer{o}, nil)
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

// OfferPage offers events in their order, and appends the verdict about each to verdicts: an event is
// accepted if it is next in its aggregate. It waits for room in the budget, except for a published
// event. An error means that the events without a verdict were not accepted. An event for a gated
// partition is accepted and not kept: it is never settled, and the next start reads it. The caller must
// not change the offers before OfferPage returns.
func (p *Publisher) OfferPage(ctx context.Context, offers []Offer, verdicts []Verdict) ([]Verdict, error) {
	page := p.driver.newPage()
	defer p.driver.reuse(page)
	page.offers, page.verdicts = offers, verdicts
	err := p.offer(ctx, page)
	return page.verdicts, err
}

// offer passes a page to the cell until it has processed all offers.
func (p *Publisher) offer(ctx context.Context, page *page) error {
	for {
		p.driver.offer(page)
		if page.err != nil || page.at == len(page.offers) {
			return page.err
		}
		if err := p.budget.Take(ctx, page.size); err != nil {
			return err
		}
		if page.offers[page.at].By == ByTail {
			p.tailed.Waited(time.Now())
		}
		page.paid = true // while it waited, another caller may have offered the event
	}
}

// page is a list of offers of one caller.
type page struct {
	offers   []Offer
	at       int // the next offer
	verdicts []Verdict
	// size is the room that the next offer needs, if there is none; paid means that the caller has
	// taken it since.
	size int64
	paid bool
	err  error
	done chan struct{} // receives when the effects of a step with the page are executed
	ask  func(*cell)   // of inAsk: the function of the caller that runs in a step, instead of offers
}

// takeOffers processes the offers of a page until one has no room.
func (c *cell) takeOffers(p *page) {
	for ; p.at < len(p.offers); p.at++ {
		o := &p.offers[p.at]
		v, settle := Taken, false
		switch {
		case c.closed:
			p.err = failure.ErrStopping
		case c.postpones(o):
		default:
			j := c.judge(o)
			if v = j.verdict; v != Taken {
				settle = c.repeat(o, &j)
				break
			}
			size := budget.EventSize(&o.Event)
			if !p.paid && !c.budget.Try(size) {
				p.size = size
				return
			}
			p.paid = false
			c.pump(c.take(o, &j, size))
		}
		if p.paid {
			p.paid = false
			c.budget.Give(p.size)
		}
		if p.err != nil {
			return
		}
		if settle {
			c.settleTo(o.Settled)
		}
		p.verdicts = append(p.verdicts, v)
	}
}

// settleTo adds a settlement to the step.
func (c *cell) settleTo(s Settlement) {
	if s.To != nil {
		c.do(effect{do: effSettle, to: s})
	}
}

// judgement is the verdict about an offer with its reasons.
type judgement struct {
	verdict Verdict
	item    *item // of the event, if it is in progress
	lane    *lane // of the aggregate, nil for none
	line    dedup.Line
	known   bool // the aggregate has a line
}

// judge returns the verdict about an event.
func (c *cell) judge(o *Offer) (j judgement) {
	e, aggregate := &o.Event, o.Event.AggregateID.UUID()
	var published bool
	if j.item, published, _ = c.ids.find(e.ID.UUID()); j.item != nil || published || c.dead.Has(e.ID.UUID()) {
		j.verdict = Repeated
		return j
	}
	if j.lane = c.lanes[aggregate]; j.lane != nil {
		j.line, j.known = j.lane.line, true
	} else {
		j.line, j.known = c.lines.Line(aggregate)
	}
	j.verdict = c.judgeNumber(o, j.line, j.known)
	return j
}

// judgeNumber returns the verdict about an event that is not in the dedup index, by its number and the
// line of its aggregate.
func (c *cell) judgeNumber(o *Offer, l dedup.Line, known bool) Verdict {
	e, aggregate := &o.Event, o.Event.AggregateID.UUID()
	if e.Sequence == 0 {
		return Taken
	}
	if _, busy := c.claims[aggregate]; busy && !o.Owner {
		return Claimed
	}
	if !o.Owner && c.older.HoldsBack(e, o.Written, l, known, c.lines.HasGaps(aggregate)) {
		return Unknown
	}
	switch {
	case o.Missing:
		return Taken
	case !known && (o.Anyway || e.Sequence == 1 && !c.rewritten(e, o.Written)):
		return Taken
	case !known, !o.Owner && e.Sequence >= l.Next && c.lines.Doubted(aggregate):
		return Unknown
	case e.Sequence >= l.Next && !o.Owner && c.lines.GapsDue(aggregate, e.Sequence, c.now):
		return Ahead // the skipped numbers are looked up again first
	case e.Sequence == l.Next, e.Sequence > l.Next && o.Anyway:
		return Taken
	case e.Sequence > l.Next:
		return Ahead
	case c.lines.IsGap(aggregate, e.Sequence):
		return Taken
	case o.By == ByTail || !o.Owner:
		c.lines.Doubt(aggregate)
		return Left
	case e.Sequence >= l.First && o.Written <= c.ids.index.Horizon() && !c.lines.Doubted(aggregate):
		return Repeated
	}
	return Taken
}

// rewritten reports whether the row of an event of an unknown aggregate may have been
// written again, and the start may not have read the event's record.
func (c *cell) rewritten(e *outbox.Event, written int64) bool {
	return cdclog.Rewritten(e, written) || !e.CreatedAt.IsZero() && cdclog.Due(e) < c.readFrom
}

// Submit accepts a row, which may be an invalid event. The caller ensures that it is
// next in its aggregate.
func (p *Publisher) Submit(ctx context.Context, e cdclog.StoredEvent, by Source, settled Settlement) error {
	_, err := p.Offer(ctx, Offer{Event: e.Event, Written: e.Written, Bad: e.Err, By: by, Owner: true, Anyway: true, Settled: settled})
	return err
}

// SubmitMissing is Submit for a row that was read by key, and whose event was found in no
// topic. again reports that the relay has published it.
func (p *Publisher) SubmitMissing(ctx context.Context, e cdclog.StoredEvent, again bool, settled Settlement) error {
	_, err := p.Offer(ctx, Offer{Event: e.Event, Written: e.Written, Bad: e.Err, By: ByKey, Owner: true, Anyway: true, Missing: true, Again: again, Settled: settled})
	return err
}

// repeat records a repeated event and reports whether it is settled.
func (c *cell) repeat(o *Offer, j *judgement) (settled bool) {
	if j.verdict != Repeated {
		return false
	}
	it := j.item
	if o.By == BySweep {
		c.metrics.Repeated.Inc()
	}
	if it == nil && c.isUnexplained(o) { // before the event counts as accepted
		suspect := *o
		c.report(func(to *Publisher) { to.conflicts.suspect(&suspect) })
	}
	if o.Owner && o.Event.Sequence > 0 {
		c.advance(o.Event.AggregateID.UUID(), o.Event.Sequence)
	}
	if it == nil {
		first := o.By == BySweep && c.ids.index.Show(o.Event.ID.UUID(), o.Written)
		if o.Event.Sequence == 0 {
			if _, published, _ := c.ids.find(o.Event.ID.UUID()); published {
				c.lateBy(o, c.noteRepeated(o, first && o.Written <= c.readUntil))
			}
		}
		return true
	}
	if (it.event.AggregateID != o.Event.AggregateID || it.event.Sequence != o.Event.Sequence) && o.Bad == nil && it.topicErr == nil {
		c.idTwice(&o.Event)
	}
	it.shown = it.shown || o.By == BySweep
	it.addSettlement(o.Settled)
	return false
}

// take puts the event into its aggregate's lane.
func (c *cell) take(o *Offer, j *judgement, size int64) *lane {
	if o.Event.CreatedAt.IsZero() && o.Written > 0 {
		o.Event.CreatedAt = time.UnixMicro(o.Written).UTC()
	}
	if o.Bad == nil {
		limitDelay(&o.Event, c.now)
	}
	topic, topicErr := c.env.Of(&o.Event)
	if o.Bad != nil {
		topicErr = o.Bad
	}
	l, it := j.lane, (*item)(nil)
	if l != nil {
		it = c.items.take()
	} else {
		l = c.newLane(o.Event.AggregateID.UUID(), j.line)
		it = &l.first
	}
	*it = item{key: it.key, lane: l, by: o.By, scanned: o.By == ByBackfill && c.older.Old(o.Written), event: o.Event, written: o.Written, captured: c.now, topic: topic, topicErr: topicErr, bytes: size, shown: o.By == BySweep}
	if o.Bad != nil && c.cfg.writesDeadLetters() {
		it.cause = &deadLetterCause{class: classifyError(o.Bad), err: o.Bad} // including a blocked or spilled one
	} else {
		it.cause = c.dead.interrupted(o.Event.ID.UUID())
	}
	it.addSettlement(o.Settled)
	c.ids.begin(it)
	switch {
	case o.Event.Sequence == 0:
		c.lateBy(o, noteTime(l, o))
	case l.line.Next > o.Event.Sequence:
		if !o.Again && o.Event.Sequence >= l.line.First && !c.lines.IsGap(l.id, o.Event.Sequence) {
			c.numberTwice(&o.Event)
		}
		c.metrics.Late.Inc()
		e, next := &it.event, l.line.Next
		c.report(func(to *Publisher) {
			to.log.Warn("event accepted after a later one of its aggregate", "event_id", e.ID.String(), "aggregate_id", e.AggregateID.String(), "sequence", e.Sequence, "next", next, trace.Attrs(e.Headers))
		})
		fallthrough
	default:
		l.line = c.lines.Advance(l.id, l.line, o.Event.Sequence, c.now)
	}
	if o.By != ByBackfill && c.older != nil {
		c.older.Took(&o.Event, o.Written)
	}
	l.items = append(l.items, it)
	c.metrics.Found[o.By].Inc()
	if o.By == BySweep {
		c.metrics.Swept[c.tailed.Cause(o.Event.AggregateID.UUID(), o.Written)].Inc()
	}
	return l
}

// limitDelay sets the time at which an event is due to MaxDelay from now if it is later: the clock
// that dated the event is ahead, and its aggregate waits until then.
func limitDelay(e *outbox.Event, now time.Time) {
	if last := now.Add(outbox.MaxDelay); e.DeliverAt.After(last) {
		e.DeliverAt = last
	}
}

// Claim waits until no other caller fills a gap of the aggregate. Until release is
// called, it prevents other callers from publishing events of the aggregate.
func (p *Publisher) Claim(ctx context.Context, aggregate gocql.UUID) (release func(), err error) {
	for {
		release, busy := p.tryClaim(aggregate)
		if release != nil {
			return release, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryClaim is Claim without waiting. If release is nil, another caller has the claim,
// and busy is closed when that caller releases it.
func (p *Publisher) tryClaim(aggregate gocql.UUID) (release func(), busy <-chan struct{}) {
	p.ask(func(c *cell) {
		if claim, claimed := c.claims[aggregate]; claimed {
			busy = claim
			return
		}
		c.claims[aggregate] = make(chan struct{})
		release = func() { p.ask(func(c *cell) { c.releaseClaim(aggregate) }) }
	})
	return release, busy
}

// releaseClaim ends the claim of an aggregate.
func (c *cell) releaseClaim(aggregate gocql.UUID) {
	close(c.claims[aggregate])
	delete(c.claims, aggregate)
}

// Pass records that the sweep has read the log up to a write time in microseconds.
func (p *Publisher) Pass(upTo int64, every time.Duration) {
	for more := true; more; {
		p.ask(func(c *cell) { more = c.ids.index.Pass(upTo, c.now, every) })
	}
	p.ask(func(c *cell) { c.dead.passed = max(c.dead.passed, upTo) })
	p.hold()
}

// settle removes an item that is published or a dead letter, and adds its settlements to the step.
func (c *cell) settle(l *lane, it *item, published bool) {
	it.state = acked
	if i := slices.Index(l.items, it); i > 0 { // after records that the producer has
		l.items = slices.Delete(l.items, i, i+1)
	}
	l.pop()
	c.settleTo(it.settled)
	for _, s := range it.also {
		c.settleTo(s)
	}
	c.ids.end(it, published)
}

// lateBy counts an event that is published after a later one of its aggregate, unless by
// is 0; o is either of the two.
func (c *cell) lateBy(o *Offer, by int64) {
	if by == 0 {
		return
	}
	c.metrics.Late.Inc()
	e := o.Event
	c.report(func(to *Publisher) {
		to.log.Warn("event published after a later one of its aggregate", "event_id", e.ID.String(), "aggregate_id", e.AggregateID.String(),
			"by", time.Duration(by)*time.Microsecond, trace.Attrs(e.Headers))
	})
}
