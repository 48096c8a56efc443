package publish

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// driver owns the cell of a publisher: one goroutine passes inputs to it, and executes the effects of
// each step before the next one. Its other methods are safe for concurrent use.
type driver struct {
	p      *Publisher
	cell   *cell
	posted chan struct{} // receives when mu.inputs is not empty
	over   chan struct{} // closed when run has ended
	slots  free[slot]
	mu     struct {
		sync.Mutex
		inputs []input
		ended  bool    // run has ended: inputs are processed by whoever posts them, one at a time
		free   []*page // for further callers
	}
}

func (d *driver) init(p *Publisher, c *cell) {
	d.p, d.cell, d.posted, d.over = p, c, make(chan struct{}, 1), make(chan struct{})
}

// run processes inputs until inEnd, and those posted before it has ended.
func (d *driver) run() {
	defer close(d.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	stopped, wakes := d.p.ctx.Done(), d.p.calls.Wakes()
	var inputs []input
	var now time.Time
	for ending := false; ; {
		select {
		case <-d.posted:
			d.mu.Lock()
			inputs, d.mu.inputs = d.mu.inputs, inputs[:0]
			d.mu.ended = ending && len(inputs) == 0
			d.mu.Unlock()
			for i := range inputs {
				if i%stepsPerTime == 0 {
					now = time.Now()
				}
				d.step(&inputs[i], now)
				ending = ending || inputs[i].kind == inEnd
			}
			if ending && len(inputs) == 0 {
				return
			}
			clear(inputs)
		case <-timer.C:
			d.check(timer)
		case <-wakes:
			d.check(timer)
		case <-stopped:
			stopped, wakes = nil, nil
			timer.Stop()
		}
	}
}

// check checks calls, partitions and the breaker, and sets when they are checked next.
func (d *driver) check(timer *time.Timer) {
	in := input{kind: inCheck}
	d.step(&in, time.Now())
	timer.Reset(in.wait)
}

// end processes the posted inputs and ends run.
func (d *driver) end() {
	d.post(input{kind: inEnd})
	for {
		select {
		case d.posted <- struct{}{}:
		case <-d.over:
			return
		}
	}
}

// post passes an input to the cell. It does not block.
func (d *driver) post(in input) {
	d.mu.Lock()
	if d.mu.ended {
		defer d.mu.Unlock()
		d.step(&in, time.Now())
		return
	}
	d.mu.inputs = append(d.mu.inputs, in)
	d.mu.Unlock()
	select {
	case d.posted <- struct{}{}:
	default:
	}
}

// offer passes a page to the cell and waits until it is processed, or needs room.
func (d *driver) offer(p *page) {
	d.post(input{kind: inOffers, page: p})
	<-p.done
}

// ask calls f with the cell in a step, and waits until its effects are executed. No effect may
// call it.
func (p *Publisher) ask(f func(*cell)) {
	d := &p.driver
	asked := d.newPage()
	asked.ask = f
	d.post(input{kind: inAsk, page: asked})
	<-asked.done
	d.reuse(asked)
}

// newPage returns an empty page, reuse takes it back.
func (d *driver) newPage() *page {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.mu.free); n > 0 {
		p := d.mu.free[n-1]
		d.mu.free = d.mu.free[:n-1]
		return p
	}
	return &page{done: make(chan struct{}, 1)}
}

func (d *driver) reuse(p *page) {
	*p = page{done: p.done}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.free = append(d.mu.free, p)
}

// stepsPerTime is how many inputs that were posted together have one time: to read the clock costs as
// much as a step.
const stepsPerTime = 16

// step passes an input to the cell, executes the effects, and tells the caller that waits for it.
func (d *driver) step(in *input, now time.Time) {
	d.p.execute(d.cell.Step(in, now))
	for len(d.cell.due) > 0 {
		d.p.execute(d.cell.Step(&input{kind: inContinue}, now))
	}
	if s := in.slot; s != nil && cap(s.values) <= maxSlotValues {
		clear(s.headers)
		s.Record = kgo.Record{}
		d.slots.give(s)
	}
	if in.page != nil {
		in.page.done <- struct{}{}
	}
}

// execute executes the effects of a step.
func (p *Publisher) execute(effects []effect) {
	for i := range effects {
		e := &effects[i]
		switch e.do {
		case effSend:
			p.send(e.item, e.breaker)
		case effSettle:
			e.to.Settle()
		case effWake:
			l, until := e.lane, e.until
			time.AfterFunc(time.Until(until), func() { p.driver.post(input{kind: inTime, lane: l, at: until}) })
		case effRecall:
			e.lane.flight.Recall()
		case effTopic:
			topic := e.topic
			p.wg.Go(func() {
				err := p.EnsureTopic(p.ctx, topic)
				p.driver.post(input{kind: inTopic, topic: topic, err: err})
			})
		case effWrite:
			p.writer.start(e.lane)
		case effEndReplay:
			e.lane.replay.end(*e.end)
		case effReplay:
			p.wake()
		case effPing:
			breakerCall := e.call
			p.wg.Go(func() {
				ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
				defer cancel()
				p.calls.EndPing(breakerCall, p.producer.Ping(ctx))
			})
		case effFail:
			p.fatal(e.err)
		case effReport:
			e.report(p)
		}
	}
	clear(effects)
}

// broker is the environment of the cell of a publisher.
type broker struct {
	*producer.Producer
	*topics.Names
	p *Publisher
}

var _ environment = broker{}

func (b broker) end(l *lane)              { l.flight.End() }
func (b broker) isRejecting(l *lane) bool { return l.flight.Rejecting() }
func (b broker) isRecalled(l *lane) bool  { return l.flight.Recalled() }

func (b broker) begin(l *lane, topic string) {
	if l.flight.Context == nil {
		l.flight.Init(b.Producer)
		l.publisher = b.p
	}
	l.flight.Begin(topic)
}
