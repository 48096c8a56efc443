package publish

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/budget"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
)

// cellModel is the world of a cell: readers, a broker, a table for dead letters and a replayer, which
// take their permitted steps at random.
type cellModel struct {
	*rapid.T
	cell    *cell
	offered [modelAggregates]int64 // the last number of each aggregate
	flights map[*lane]*modelFlight
	topics  map[string]bool // that exist
	making  []string
	timers  []effect
	writers map[*lane]*writtenDeadLetter // nil before the next dead letter is begun
	stored  map[gocql.UUID]*dlq.DeadLetter
	works   []*modelWork
	pings   []*calls.Call
	away    bool // the broker accepts nothing
	gates   map[int32]bool
	// published contains the events of each aggregate in the topics; settled the events that were
	// reported to the readers.
	published [modelAggregates][]int64
	settled   map[uint64]bool
	load      loadMeter
	events    map[gocql.UUID]modelEvent // that were offered
	pending   *page                     // it has no room for an offer
	plain     bool                      // aggregate 2 has no numbers
	stops     bool                      // the relay starts again
}

// modelEvent is an event and its place in its aggregate.
type modelEvent struct {
	outbox.Event
	aggregate int
	seq       int64
}

const modelAggregates = 3

// modelFlight contains the records of a lane that the broker has, in its order. After an error all
// come back with it.
type modelFlight struct {
	sent                []*item
	broken              error
	rejecting, recalled bool
}

// modelWork is the replay of the dead letters of a chain, one after the other.
type modelWork struct {
	*replayWork
	next  int // the one that is replayed now
	ended *replayEnd
}

func (*modelWork) isClaimed(time.Time) bool { return true }
func (w *modelWork) end(e replayEnd)        { w.ended = &e }

func newCellModel(t *rapid.T) *cellModel {
	cfg := testConfig()
	cfg.DeadLetters, cfg.SpillLimit, cfg.Partitions, cfg.MaxInFlightRecords, cfg.Logger = new(dlq.Store), rapid.SampledFrom([]int{6, 1000}).Draw(t, "spill limit"), 2, 12, slog.New(slog.DiscardHandler)
	m := &cellModel{
		T: t, flights: make(map[*lane]*modelFlight), topics: make(map[string]bool), writers: make(map[*lane]*writtenDeadLetter),
		plain: rapid.Bool().Draw(t, "plain"), events: make(map[gocql.UUID]modelEvent),
		stored: make(map[gocql.UUID]*dlq.DeadLetter), settled: make(map[uint64]bool), gates: make(map[int32]bool), load: loadMeter{cfg: &cfg},
	}
	if rapid.IntRange(0, 3).Draw(t, "table") == 0 {
		cfg.DeadLetters = nil
	}
	metrics := NewMetrics(prometheus.NewRegistry())
	m.cell = newCell(&cfg, m, newCalls(&cfg, metrics), budget.New(cfg.MaxInFlightRecords, cfg.MaxInFlightBytes), swept.New(true, time.Minute), metrics)
	return m
}

// The environment. An aggregate is a partition, so that two aggregates share one.
func (m *cellModel) Of(e *outbox.Event) (string, error)       { return e.Type, nil }
func (m *cellModel) Ready(topic string) bool                  { return m.topics[topic] }
func (m *cellModel) Forget(topic string)                      { delete(m.topics, topic) }
func (m *cellModel) Part(_ string, key []byte) int32          { return int32(key[len(key)-1] % 2) }
func (m *cellModel) Count(string) int                         { return 2 }
func (m *cellModel) Gated(_ string, key []byte) bool          { return m.gates[m.Part("", key)] }
func (m *cellModel) Gate(_ string, part int32, _ int)         { m.gates[part] = true }
func (m *cellModel) MayBeTooLarge(*outbox.Event, string) bool { return false }
func (m *cellModel) begin(l *lane, _ string)                  { m.flights[l] = new(modelFlight) }
func (m *cellModel) end(l *lane)                              { delete(m.flights, l) }
func (m *cellModel) isRejecting(l *lane) bool                 { return m.flights[l] != nil && m.flights[l].rejecting }

func (m *cellModel) isRecalled(l *lane) bool { return m.flights[l] != nil && m.flights[l].recalled }

// Settle is the reader: the event that it has offered is in its topic, or has a dead letter.
func (m *cellModel) Settle(id uint64) {
	if m.settled[id] {
		m.Fatalf("offer %d is settled twice", id)
	}
	m.settled[id] = true
	a, seq := int(id%modelAggregates), int64(id/modelAggregates)
	if m.stored[relaytest.Event(a, seq, "").ID.UUID()] == nil && !slices.Contains(m.published[a], seq) {
		m.Fatalf("event %d of aggregate %d is settled, and neither published nor a dead letter", seq, a)
	}
}

// step processes an input like the driver, until that waits for the next one.
func (m *cellModel) step(in input) {
	m.execute(m.cell.Step(&in, time.Now()))
	for len(m.cell.due) > 0 {
		m.execute(m.cell.Step(&input{kind: inContinue}, time.Now()))
	}
	select {
	case <-m.cell.calls.Wakes():
		m.step(input{kind: inCheck})
	default:
	}
}

func (m *cellModel) ask(f func(*cell)) { m.step(input{kind: inAsk, page: &page{ask: f}}) }

func (m *cellModel) execute(effects []effect) {
	for i := range effects {
		switch e := &effects[i]; e.do {
		case effSend:
			f := m.flights[e.item.lane]
			f.sent = append(f.sent, e.item)
		case effSettle:
			e.to.Settle()
		case effWake:
			m.timers = append(m.timers, *e)
		case effRecall:
			if f := m.flights[e.lane]; f != nil {
				f.recalled = true
			}
		case effTopic:
			m.making = append(m.making, e.topic)
		case effWrite:
			if _, writes := m.writers[e.lane]; writes {
				m.Fatal("the dead letters of a lane are written twice")
			}
			m.writers[e.lane] = nil
		case effEndReplay:
			e.lane.replay.end(*e.end)
		case effPing:
			m.pings = append(m.pings, e.call)
		case effFail:
			if !errors.Is(e.err, ErrPartitionResumed) { // it would start again
				m.Fatalf("the relay stops: %v", e.err)
			}
			m.stops = true
		}
	}
}

// event returns an event of an aggregate, which may be due later.
func (m *cellModel) event(t *rapid.T, a int, seq int64) outbox.Event {
	e := relaytest.Event(a, seq, "T"+string('0'+rune(seq/4%2)))
	if known, ok := m.events[e.ID.UUID()]; ok {
		return known.Event
	}
	if m.plain && a == 2 {
		e.Sequence = 0
	}
	if rapid.IntRange(0, 4).Draw(t, "later") == 0 {
		e.DeliverAt = time.Now().Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "delay"))
	}
	m.events[e.ID.UUID()] = modelEvent{e, a, seq}
	return e
}

// resume continues a page if there is room for its next offer.
func (m *cellModel) resume(*rapid.T) {
	p := m.pending
	if p == nil || !m.cell.budget.Try(p.size) {
		return
	}
	p.paid = true
	m.step(input{kind: inOffers, page: p})
	if p.at == len(p.offers) {
		m.pending = nil
	}
}

// offer offers the next events of an aggregate, or one that was offered before. While they wait for
// room, another reader offers one of them.
func (m *cellModel) offer(t *rapid.T) {
	a := rapid.IntRange(0, modelAggregates-1).Draw(t, "aggregate")
	p := &page{}
	if m.pending != nil {
		if a < 2 && m.offered[a] > 0 {
			seq := rapid.Int64Range(1, m.offered[a]).Draw(t, "number")
			p.offers = append(p.offers, Offer{Event: m.event(t, a, seq), Written: seq, By: ByKey})
			m.step(input{kind: inOffers, page: p})
		}
		return
	}
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		seq := m.offered[a] + 1
		if m.offered[a] > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
			seq = rapid.Int64Range(1, m.offered[a]).Draw(t, "number")
		}
		o := Offer{Event: m.event(t, a, seq), Written: seq, By: ByTail}
		if seq%7 == 0 && m.cell.cfg.writesDeadLetters() {
			o.Bad = &rows.RowError{Column: "payload", Problem: "is missing"}
		}
		if seq > m.offered[a] {
			m.offered[a] = seq
			o.Settled = Settlement{m, uint64(seq)*modelAggregates + uint64(a)}
		}
		p.offers = append(p.offers, o)
	}
	m.step(input{kind: inOffers, page: p})
	if p.at < len(p.offers) {
		m.pending = p
	}
}

// lane returns one of the lanes that the broker has records of, nil if there is none.
func (m *cellModel) lane(t *rapid.T) *lane {
	lanes := slices.SortedFunc(maps.Keys(m.flights), func(a, b *lane) int { return a.sentAt().Compare(b.sentAt()) })
	lanes = slices.DeleteFunc(lanes, func(l *lane) bool { return len(m.flights[l].sent) == 0 })
	if len(lanes) == 0 {
		return nil
	}
	return lanes[rapid.IntRange(0, len(lanes)-1).Draw(t, "lane")]
}

// sentAt is when the first record was sent.
func (l *lane) sentAt() time.Time { return l.items[0].sentAt }

// answer returns the first record of a lane.
func (m *cellModel) answer(t *rapid.T) {
	l := m.lane(t)
	if l == nil {
		return
	}
	f := m.flights[l]
	err := f.broken
	switch {
	case err != nil:
	case m.away:
		err = kerr.NotEnoughReplicas
	case f.recalled && rapid.Bool().Draw(t, "recalled"):
		err = producer.ErrRecalled
	default:
		err = rapid.SampledFrom([]error{nil, nil, nil, nil, kerr.NotEnoughReplicas, kerr.InvalidRecord}).Draw(t, "error")
	}
	m.result(l, err)
}

// reject returns all records of a lane but the first ones, because they are of another batch.
func (m *cellModel) reject(t *rapid.T) {
	l := m.lane(t)
	if l == nil || m.flights[l].broken != nil || len(m.flights[l].sent) < 2 {
		return
	}
	f := m.flights[l]
	f.rejecting = true
	at := rapid.IntRange(1, len(f.sent)-1).Draw(t, "first")
	rejected := f.sent[at:]
	f.sent = f.sent[:at:at]
	for _, it := range rejected {
		m.step(input{kind: inResult, item: it, record: new(kgo.Record), rejected: true, err: errors.New("rejected"), at: time.Now()})
	}
}

// result returns the first record of a lane.
func (m *cellModel) result(l *lane, err error) {
	f := m.flights[l]
	it := f.sent[0]
	f.sent, f.broken = f.sent[1:], err
	if err == nil {
		m.cell.calls.Acknowledged(time.Now())
		e := m.events[it.event.ID.UUID()]
		m.published[e.aggregate] = append(m.published[e.aggregate], e.seq)
		if it.event.DeliverAt.After(time.Now()) {
			m.Fatalf("event %d of aggregate %d is published before it is due", e.seq, e.aggregate)
		}
	}
	m.step(input{kind: inResult, item: it, record: new(kgo.Record), err: err, at: time.Now()})
}

// topic ends the creation of a topic.
func (m *cellModel) topic(*rapid.T) {
	if len(m.making) == 0 {
		return
	}
	topic := m.making[0]
	m.making = m.making[1:]
	m.topics[topic] = true
	m.step(input{kind: inTopic, topic: topic})
}

// write begins or ends the writing of a dead letter.
func (m *cellModel) write(*rapid.T) {
	lanes := slices.SortedFunc(maps.Keys(m.writers), func(a, b *lane) int { return slices.Compare(a.id[:], b.id[:]) })
	if len(lanes) == 0 {
		return
	}
	l := lanes[0]
	if d := m.writers[l]; d != nil {
		m.stored[d.EventID] = d.DeadLetter
		m.writers[l] = nil
		m.ask(func(c *cell) {
			c.dead.writing--
			c.endDeadLetter(d, true, false)
		})
		return
	}
	var d *writtenDeadLetter
	delete(m.writers, l) // the lane may begin again in the step
	m.ask(func(c *cell) {
		if d = c.beginDeadLetter(l, &m.load); d != nil {
			m.writers[l] = d
		}
	})
}

// replay begins the replay of due dead letters, or continues one.
func (m *cellModel) replay(*rapid.T) {
	for i, w := range m.works {
		if w.ended == nil {
			continue
		}
		e := *w.ended
		w.ended = nil
		id := w.refs[w.next].ID
		switch {
		case e.err == nil:
			w.next++
			m.ask(func(c *cell) { c.settled(id, 1) })
		default: // called off, or to be retried
			w.next = len(w.refs)
			m.ask(func(c *cell) {
				c.dead.Change(id, func(ref *chains.Ref) {
					if ref.At = chains.AtOnce; failure.Classify(e.err) == failure.Permanent {
						ref.At = c.now.Add(time.Minute).UnixMilli()
					}
				})
			})
		}
		m.proceed(i, w)
		return
	}
	m.ask(func(c *cell) {
		for _, works := range c.beginReplays(math.Inf(1), math.Inf(1)).batches {
			for _, w := range works {
				m.works = append(m.works, &modelWork{replayWork: w, next: -1})
			}
		}
	})
	for i, w := range m.works {
		if w.next < 0 {
			w.next = 0
			m.proceed(i, w)
		}
	}
}

// proceed sends the next dead letter of a work, or ends it.
func (m *cellModel) proceed(i int, w *modelWork) {
	if w.next < len(w.refs) {
		d := m.stored[w.refs[w.next].ID]
		m.ask(func(c *cell) { c.resend(storedEvent(d), d, w) })
		return
	}
	m.works = slices.Delete(m.works, i, i+1)
	m.ask(func(c *cell) { c.finishReplay(w.replayWork, true) })
}

// pass lets time pass.
func (m *cellModel) pass(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second, 40 * time.Second}).Draw(t, "time"))
	m.tick()
}

// tick passes due timers.
func (m *cellModel) tick() {
	for i := 0; i < len(m.timers); {
		if e := m.timers[i]; !e.until.After(time.Now()) {
			m.timers = slices.Delete(m.timers, i, i+1)
			m.step(input{kind: inTime, lane: e.lane, at: e.until})
		} else {
			i++
		}
	}
	m.step(input{kind: inCheck})
	for _, call := range m.pings {
		var err error
		if m.away {
			err = kerr.NotEnoughReplicas
		}
		m.cell.calls.EndPing(call, err)
	}
	m.pings = nil
}

// outage begins or ends an outage of the broker.
func (m *cellModel) outage(*rapid.T) { m.away = !m.away }

// check is the specification: the topics contain the events of each aggregate once, in their order and
// without a gap; and what an event waits for exists, and makes its lane decide again.
func (m *cellModel) check(*rapid.T) {
	for a := range m.published {
		for i, seq := range m.published[a] {
			if seq != int64(i+1) {
				m.Fatalf("the topics contain %v of aggregate %d", m.published[a], a)
			}
		}
	}
	for l := range m.cell.replaying {
		m.explain(l)
	}
	for _, l := range m.cell.lanes {
		m.explain(l)
		for _, it := range l.items {
			if m.cell.eventState(&it.event) == "" {
				m.Fatalf("event %d of aggregate %s has no state", it.event.Sequence, l.id)
			}
		}
	}
	m.cell.effects = m.cell.effects[:0]
}

// explain fails unless what a lane waits for exists, now or after the next check of the breaker and the
// partitions.
func (m *cellModel) explain(l *lane) {
	if m.stops || m.waits(l) == "" {
		return
	}
	if m.cell.calls.NextCheck(true) <= m.cell.cfg.AttemptTimeout {
		m.step(input{kind: inCheck})
	}
	if why := m.waits(l); why != "" {
		m.Fatal(why)
	}
}

// waits returns why a lane waits for nothing, empty if it does not.
func (m *cellModel) waits(l *lane) (why string) {
	c := m.cell
	v := c.view(l)
	s := l.decide(&v, time.Now())
	p := c.partitions.of[v.part]
	waits := func() (does bool) {
		if p != nil {
			_, does = p.waiting[l]
		}
		return does
	}
	ok := false
	switch s.do {
	case actSend: // the breaker has admitted no record; its next check retries
		_, ok = c.refused[l]
		ok = ok || waits() && p.open > 0 // its partition has a greater share of the budget since
	case actMakeTopic:
		p = c.partitions.of[Partition{l.firstQueued().topic, -1}]
		ok = waits() && p.creating
	case actPostpone: // its partition is gated since
		chain := c.dead.Of(l.id)
		ok = l.outstanding > 0 || chain != nil && chain.Draining || waits() && p.creating
	case actDelay:
		ok = true
	case actDeadLetter: // there is room for it since; the breaker changes
		ok = v.breaker == BreakerOpen
	case actWait:
		switch s.why {
		case forNothing:
			ok = true
		case forRecords, forReturn:
			ok = l.outstanding > 0 && m.flights[l] != nil && len(m.flights[l].sent) == l.outstanding
		case forTime:
			ok = slices.ContainsFunc(m.timers, func(e effect) bool { return e.lane == l && e.until.Equal(l.until) })
		case forWrite:
			_, ok = m.writers[l]
		case forBreaker:
			ok = v.breaker != BreakerClosed
		case forProbes:
			ok = v.breaker == BreakerHalfOpen
		case forReplay:
			ok = c.dead.Of(l.id).Draining
		case forPartition:
			ok = waits() && (p.open > 0 || p.creating) || l.outstanding > 0
		case forProbe:
			ok = p != nil && p.probe != nil && (p.probe == l && p.open > 0 || waits() || slices.Contains(p.suspects, l))
		case forStop:
			ok = l.state == laneEnded
		}
	}
	if !ok {
		why = fmt.Sprintf("a lane of %d events, %d of them with the producer, in state %s waits for nothing: action %d, reason %d, breaker %s, view %+v", len(l.items), l.outstanding, laneStates[l.state], s.do, s.why, v.breaker, v)
	}
	return why
}

// settle lets everything succeed from now on: each event is published.
func (m *cellModel) settle(t *rapid.T) {
	m.away = false
	for range 500 {
		for range m.cell.cfg.MaxInFlightRecords {
			m.resume(t)
		}
		for l := m.first(); l != nil; l = m.first() {
			m.result(l, m.flights[l].broken)
		}
		m.topic(t)
		for range 20 {
			m.write(t)
		}
		m.ask(func(c *cell) { // an operator requests all replays
			for id := range m.stored {
				c.dead.Change(id, func(ref *chains.Ref) { ref.At, ref.Asked = chains.AtOnce, true })
			}
		})
		m.replay(t)
		m.check(t)
		if m.cell.gated { // until the relay starts again
			return
		}
		if m.over() {
			for i := range m.cell.cfg.MaxInFlightRecords {
				if !m.cell.budget.Try(1) {
					t.Fatalf("all events are settled, and the budget has room for %d", i)
				}
			}
			return
		}
		time.Sleep(time.Second)
		m.tick()
	}
	for a, last := range m.offered {
		for seq := int64(1); seq <= last; seq++ {
			if e := relaytest.Event(a, seq, ""); !slices.Contains(m.published[a], seq) {
				t.Errorf("event %d of aggregate %d is not published, and %q", seq, a, m.cell.eventState(&e))
			}
		}
	}
	t.Fatalf("%d of the offers are settled, the topics contain %v of %v", len(m.settled), m.published, m.offered)
}

// over reports whether all events are published and settled.
func (m *cellModel) over() bool {
	all := 0
	for a, last := range m.offered {
		if all += int(last); len(m.published[a]) != int(last) {
			return false
		}
	}
	return len(m.settled) == all
}

// first returns a lane that the broker has records of, nil if there is none.
func (m *cellModel) first() *lane {
	for l, f := range m.flights {
		if len(f.sent) > 0 {
			return l
		}
	}
	return nil
}

// Whatever happens in whatever order, events are published once and in order, none is settled before it
// is published or a dead letter, and none waits for nothing.
func TestCell_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { // no deadline in a bubble
			m := newCellModel(t)
			t.Repeat(map[string]func(*rapid.T){
				"": m.check, "offer": m.offer, "answer": m.answer, "reject": m.reject, "topic": m.topic, "write": m.write,
				"replay": m.replay, "pass": m.pass, "resume": m.resume, "outage": m.outage,
			})
			m.settle(t)
		})
	})
}
