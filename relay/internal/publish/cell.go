package publish

import (
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/older"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cell is the state of all aggregates: their lanes, the dedup index, the open dead letters and
// the partitions that events wait for. It has one owner, the driver, which passes it one input after
// the other; Step returns the effects to execute. A cell has no locks, starts no goroutines and does
// no I/O. It reads the breaker, the budget and its environment, which change concurrently.
type cell struct {
	cfg     *Config
	env     environment
	calls   *calls.Calls
	budget  *budget.Budget
	tailed  *swept.Tracker
	metrics *Metrics

	// now is the time of the step, effects the ones decided so far. due contains the lanes
	// that decide again in the next step, with inContinue, which follows when the effects are executed.
	now     time.Time
	effects []effect
	due     []*lane

	lanes   map[gocql.UUID]*lane // aggregates with events in progress
	held    map[gocql.UUID]*Hold
	claims  map[gocql.UUID]chan struct{} // aggregates in which a caller fills a gap
	lines   *dedup.Lines
	sending laneSet            // lanes with records outstanding
	refused map[*lane]struct{} // lanes that the breaker refused
	// postponed contains the aggregates with events for a gated partition, and the number of
	// the first one, 0 without numbers (postpone.go).
	postponed  map[gocql.UUID]int64
	ids        eventIDs
	partitions partitions
	dead       *deadLetters
	replays    replays
	replaying  map[*lane]struct{} // lanes of replays
	free       free[lane]
	items      free[item]  // of lanes that have more than one
	older      *older.Rows // rows that a backfill has not offered yet, nil without one
	gateRoom   gateRoom
	gated      bool // a partition is gated
	closed     bool
	// readFrom is the creation time from which the start read all published events, in
	// microseconds; 0 if it read none. readUntil limits the write times of the events that it found.
	readFrom, readUntil int64
}

// environment is what a step reads, and the small parts of the producer that it changes
// immediately. All methods are quick, and none calls the cell. Those with the names of methods of
// topics.Names, topics.Catalog, topics.Partitions and producer.Producer are these.
type environment interface {
	Of(e *outbox.Event) (topic string, err error)
	Ready(topic string) bool
	Forget(topic string)
	Part(topic string, key []byte) int32
	Count(topic string) int
	Gated(topic string, key []byte) bool
	Gate(topic string, part int32, n int)
	MayBeTooLarge(e *outbox.Event, topic string) bool
	// begin and end mark the lane's outstanding records; isRejecting reports whether
	// further ones would be rejected, isRecalled whether they were recalled.
	begin(l *lane, topic string)
	end(l *lane)
	isRejecting(l *lane) bool
	isRecalled(l *lane) bool
}

// effectKind is what an effect does.
type effectKind uint8

const (
	effSend      effectKind = iota // pass the item's record to the producer
	effSettle                      // tell the reader that its event is settled
	effWake                        // pass inTime for the lane at a time
	effRecall                      // ask the producer for the lane's records
	effTopic                       // look up or create the topic, then pass inTopic
	effWrite                       // write dead letters from the front of the lane
	effEndReplay                   // tell the replayer the result
	effReplay                      // let the replayer check for due dead letters
	effPing                        // ping the broker
	effFail                        // stop the relay with an error
	effReport                      // log
)

// effect is an action that the driver executes after a step.
type effect struct {
	do      effectKind
	breaker BreakerState // of effSend
	lane    *lane
	item    *item
	to      Settlement
	until   time.Time
	topic   string
	call    *calls.Call
	err     error
	end     *replayEnd
	report  func(to *Publisher)
}

// inputKind is the kind of an input.
type inputKind uint8

const (
	inOffers   inputKind = iota // readers offer a page of events
	inResult                    // the producer has returned a record
	inTime                      // the time has come for which a lane waits
	inTopic                     // a topic was looked up or created, or is refused
	inCheck                     // the breaker may have changed, or calls or partitions time out
	inAsk                       // another goroutine reads or changes the state
	inContinue                  // the effects of the step before are executed
	inEnd                       // nothing: the driver ends
)

// input is what happens to a cell.
type input struct {
	kind inputKind
	lane *lane
	item *item
	// record is the returned one; rejected means that the producer has not sent it, else it is in its
	// topic if err is nil.
	record   *kgo.Record
	slot     *slot // of the record, which is unused after the step
	rejected bool
	err      error
	at       time.Time // of a result, or the time for which a lane waited
	topic    string
	page     *page         // of inOffers and inAsk
	wait     time.Duration // result of inCheck: the time until the next one
}

// newCell returns a cell without aggregates.
func newCell(cfg *Config, env environment, breaker *calls.Calls, room *budget.Budget, tailed *swept.Tracker, m *Metrics) *cell {
	c := &cell{
		cfg: cfg, env: env, calls: breaker, budget: room, tailed: tailed, metrics: m,
		lanes: make(map[gocql.UUID]*lane), held: make(map[gocql.UUID]*Hold), claims: make(map[gocql.UUID]chan struct{}),
		refused: make(map[*lane]struct{}), postponed: make(map[gocql.UUID]int64),
		dead: newDeadLetters(cfg), replaying: make(map[*lane]struct{}),
	}
	c.lines = dedup.NewLines(cfg.Share.Aggregates, func(aggregate gocql.UUID) bool { return c.lanes[aggregate] != nil })
	c.ids.init(cfg.Share.Events)
	c.partitions.init(cfg)
	return c
}

// Step returns what follows from an input. The result is valid until the next step, which begins
// when all effects are executed in their order.
func (c *cell) Step(in *input, now time.Time) []effect {
	c.now, c.ids.now, c.effects = now, now, c.effects[:0]
	switch in.kind {
	case inOffers:
		c.takeOffers(in.page)
	case inResult:
		c.returned(in)
	case inTime:
		if in.lane.wake(in.at) {
			c.pump(in.lane)
		}
	case inTopic:
		c.topicMade(in.topic, in.err)
	case inCheck:
		in.wait = c.check()
	case inAsk:
		in.page.ask(c)
	case inContinue:
		due := c.due
		c.due = nil
		for _, l := range due {
			c.pump(l)
		}
	}
	return c.effects
}

// do adds an effect to the step.
func (c *cell) do(e effect) { c.effects = append(c.effects, e) }

// report adds a message to the step.
func (c *cell) report(f func(to *Publisher)) { c.do(effect{do: effReport, report: f}) }

// deadLetterTime is the time that dates dead letters and by which they are due: earlier and later
// owners of the shard may have hosts with other clocks.
func (c *cell) deadLetterTime() time.Time { return c.now.Add(-c.cfg.Clock.Ahead()) }

// line returns the line of an aggregate.
func (c *cell) line(aggregate gocql.UUID) (dedup.Line, bool) {
	if l, ok := c.lanes[aggregate]; ok {
		return l.line, true
	}
	return c.lines.Line(aggregate)
}

// keepLine sets the line of an aggregate.
func (c *cell) keepLine(aggregate gocql.UUID, line dedup.Line) {
	if l, ok := c.lanes[aggregate]; ok {
		l.line = line
	} else {
		c.lines.Keep(aggregate, line)
	}
}

// advance records that event seq of an aggregate needs no reader: it is published, or a dead
// letter. Otherwise the number would count as skipped, and be looked up again.
func (c *cell) advance(aggregate gocql.UUID, seq int64) {
	if known, ok := c.line(aggregate); ok {
		c.keepLine(aggregate, c.lines.Advance(aggregate, known, seq, c.now))
	}
}

// newLane adds the lane of an aggregate that has none.
func (c *cell) newLane(aggregate gocql.UUID, known dedup.Line) *lane {
	l := c.free.take()
	l.id, l.line, l.items = aggregate, known, l.one[:0]
	c.lanes[aggregate] = l
	return l
}

// rest removes a lane without items, unless it was removed before, and keeps its line.
func (c *cell) rest(l *lane) {
	if len(l.items) > 0 || l.replay != nil || l.state == laneWriting || c.lanes[l.id] != l {
		return
	}
	delete(c.lanes, l.id)
	c.lines.Keep(l.id, l.line)
	if !l.kept {
		l.clear()
		c.free.give(l)
	}
}
