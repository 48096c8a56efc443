package capture

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

const (
	// maxSweptPage and maxSweptBytes bound the events of a stream that are gathered: each stream that
	// is read has a page, and they are not in the budget. Pages of 16 need a quarter more memory while
	// 256 streams are drained, and are not measurably faster.
	maxSweptPage  = 4
	maxSweptBytes = 16 << 10
	// sweptPageWait is how long the first event of a page waits for others at most. scylla-cdc-go says
	// nothing at the end of a window with rows.
	sweptPageWait = time.Millisecond
)

// SweptPages passes the changes of one stream to a Sequencer in pages. A page is submitted when it is
// full, and sweptPageWait after its first event. The goroutine that reads the stream calls the methods.
// They block while the publisher is full, or while the stream is too far ahead of its oldest unsettled
// change.
type SweptPages struct {
	sequencer *Sequencer
	progress  *checkpoint.Stream
	// passed is called after a page with events that were submitted before, as by the tail reader,
	// with their number and the time of the last change.
	passed func(ctx context.Context, published int, last time.Time) error

	// held has a token while one of the fields below is used, and while a page is submitted. A mutex
	// would stop the clock of a test that waits for the publisher.
	held  chan struct{}
	page  *sweptPage // nil without events
	timer *time.Timer
	err   error // of Submit
}

// sweptPage contains events that were read and not submitted yet, with their settlements.
type sweptPage struct {
	offers   []publish.Offer
	verdicts []publish.Verdict
	bytes    int        // of payloads
	last     gocql.UUID // time of the last change
}

var sweptPagePool = sync.Pool{New: func() any { return new(sweptPage) }}

// NewSweptPages returns the pages of a stream, whose progress passes a change when all its events are
// settled. passed, which may be nil, is called after a page with the number of its events that were
// submitted before, as by the tail reader, if there were any, and with the time of its last change.
func NewSweptPages(s *Sequencer, progress *checkpoint.Stream, passed func(ctx context.Context, published int, last time.Time) error) *SweptPages {
	return &SweptPages{sequencer: s, progress: progress, passed: passed, held: make(chan struct{}, 1)}
}

// Add adds the events of a change, unless they were settled before a restart of the reader. An error
// means that an event of this change or an earlier one was not submitted: the reader has to end.
func (p *SweptPages) Add(ctx context.Context, t gocql.UUID, events []cdclog.StoredEvent) error {
	p.held <- struct{}{}
	defer p.release()
	if p.err != nil {
		return p.err
	}
	if len(events) == 0 || p.progress.Settled(t) {
		p.pass(t)
		return nil
	}
	id := p.progress.Begin(t, len(events))
	if p.page == nil {
		p.page = sweptPagePool.Get().(*sweptPage)
		p.arm()
	}
	page := p.page
	page.last = t
	for i := range events {
		e := &events[i]
		page.offers = append(page.offers, publish.Offer{
			Event: e.Event, Written: e.Written, Bad: e.Err, By: publish.BySweep, Settled: publish.Settlement{To: p.progress, ID: id},
		})
		page.bytes += len(e.Payload)
	}
	if len(page.offers) < maxSweptPage && page.bytes < maxSweptBytes {
		return nil
	}
	return p.submit(ctx)
}

func (p *SweptPages) release() { <-p.held }

// pass records that the log contains no events between the added ones and t.
func (p *SweptPages) pass(t gocql.UUID) {
	if p.page == nil {
		p.progress.Idle(t)
		return
	}
	p.page.last = t
	p.progress.Pass(t)
}

// Idle submits the added events, and records that the log contains no other changes up to t.
func (p *SweptPages) Idle(ctx context.Context, t gocql.UUID) error {
	p.held <- struct{}{}
	defer p.release()
	if err := p.submit(ctx); err != nil {
		return err
	}
	p.progress.Idle(t)
	return nil
}

// Submit submits the added events. If that fails it ends the reader, and Add and Idle return the error.
func (p *SweptPages) Submit() {
	p.held <- struct{}{}
	defer p.release()
	waiting := p.sequencer.blocked
	if p.err = p.submit(waiting.ctx); p.err != nil && waiting.ctx.Err() == nil {
		waiting.fail(fmt.Errorf("read the CDC log: %w", p.err))
	}
}

// arm sets the time at which the page is submitted, full or not. p is held.
func (p *SweptPages) arm() {
	if p.timer == nil {
		p.timer = time.AfterFunc(sweptPageWait, p.Submit)
		return
	}
	p.timer.Reset(sweptPageWait)
}

// submit submits the page. It is discarded if that fails. p is held.
func (p *SweptPages) submit(ctx context.Context) error {
	page := p.page
	if p.err != nil || page == nil {
		return p.err
	}
	p.timer.Stop()
	p.page = nil
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	published, err := p.sequencer.submit(ctx, page, p.progress.Since)
	last := page.last
	clear(page.offers)
	*page = sweptPage{offers: page.offers[:0], verdicts: page.verdicts[:0]}
	sweptPagePool.Put(page)
	if err != nil {
		return err
	}
	p.progress.HandedOn(last)
	if err := p.progress.Wait(ctx); err != nil || published == 0 || p.passed == nil {
		return err
	}
	return p.passed(ctx, published, last.Time())
}
