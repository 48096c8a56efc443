package publish

import (
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestMain(m *testing.M) {
	seeds.Rapid()
	for name, value := range map[string]string{"nofailfile": "true", "checks": "10000", "steps": "50"} { // mutants would leave files
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}

var modelErrors = []error{
	kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, producer.ErrRecalled, kerr.InvalidRecord, kerr.InvalidRecord,
	&failure.RefusedError{Err: kerr.TopicAuthorizationFailed}, kerr.SaslAuthenticationFailed, failure.ErrStopping,
}

// laneModel drives the queue of one aggregate as the Publisher does, in a world of chance.
type laneModel struct {
	*rapid.T
	queue
	v      view
	now    time.Time
	next   int64   // number of the next event
	sent   []*item // the producer has them, in their order
	broken error   // the producer returns all that it has with it
	begins bool    // the writer has not read the front yet
	writes *item   // the dead letter that is being written
	chain  []int64 // open dead letters
	topic  []int64 // the events in the topics
	wants  reason  // the lane's reason to wait since the last step
	making bool    // its topic is being looked up
	log    bool    // its events wait in the log
	seen   map[[2]laneState]bool
}

// The specification: the topics contain each event once, in the order of the aggregate; the queue
// forgets an event only if it is there, or a dead letter, or waits in the log; and the condition
// that the lane waits for exists, and changes by an event that makes it decide again.
func (m *laneModel) check(*rapid.T) {
	for i, seq := range m.topic {
		if seq != int64(i+1) {
			m.Fatalf("the topics contain %v", m.topic)
		}
	}
	settled := slices.Concat(m.topic, m.chain)
	for _, it := range m.items {
		settled = append(settled, it.event.Sequence)
	}
	slices.Sort(settled)
	for i, seq := range settled {
		if seq != int64(i+1) {
			m.Fatalf("%d is lost or there twice: published %v, dead letters %v, and %d in the lane", i+1, m.topic, m.chain, len(m.items))
		}
	}
	if !m.log && len(settled) != int(m.next) {
		m.Fatalf("%d events of %d are known", len(settled), m.next)
	}
	if len(m.sent) != m.outstanding {
		m.Fatalf("%d records are outstanding, the producer has %d", m.outstanding, len(m.sent))
	}
	if it := m.firstQueued(); it != nil && !m.holds(it) {
		m.Fatalf("event %d waits in state %s for reason %d, which does not hold", it.event.Sequence, laneStates[m.state], m.wants)
	}
}

// holds reports whether the condition that the lane waits for still exists.
func (m *laneModel) holds(it *item) bool {
	switch m.wants {
	case forRecords, forReturn:
		return len(m.sent) > 0
	case forTime:
		return m.until.After(m.now)
	case forWrite:
		return m.begins || m.writes != nil
	case forBreaker:
		return m.v.breaker == BreakerOpen || !m.v.table && m.behind(it)
	case forProbes:
		return m.v.breaker == BreakerHalfOpen && !m.v.undecided
	case forReplay:
		return len(m.chain) > 0 && m.v.chased
	case forPartition:
		return m.v.full
	case forProbe:
		return m.v.probe == otherProbe || m.v.busy
	case forStop:
		return m.v.stopped || m.state == laneEnded
	}
	return m.making
}

// sends checks that the item may be sent now.
func (m *laneModel) sends(it *item) {
	alone := m.outstanding == 0 || m.state != laneSuspect && !m.v.large && !m.alone && it.topic == m.part.Topic
	if !alone || m.broken != nil || m.v.stopped || m.v.gated || m.v.breaker == BreakerOpen || m.behind(it) || m.v.full || !m.v.ready ||
		it.topicErr != nil || it.event.DeliverAt.After(m.now) || m.v.probe == otherProbe || m.v.replay == claimLost {
		m.Fatalf("event %d is sent in state %s with %d outstanding and %+v", it.event.Sequence, laneStates[m.state], m.outstanding, m.v)
	}
}

// explains checks that the item has a reason to become a dead letter.
func (m *laneModel) explains(it *item) {
	switch {
	case m.behind(it), it.isBehind() && m.outstanding > 0:
	case it.cause == nil, it.isBehind(), it.cause.class == chains.ClassBreakerOpen && !(m.v.breaker == BreakerOpen && m.v.spills):
		m.Fatalf("event %d becomes a dead letter of %+v with %d outstanding and %+v", it.event.Sequence, it.cause, m.outstanding, m.v)
	}
}

func (m *laneModel) behind(it *item) bool { return len(m.chain) > 0 && m.chain[0] < it.event.Sequence }

// change calls f and records the change of the state.
func (m *laneModel) change(f func()) {
	from := m.state
	f()
	m.seen[[2]laneState{from, m.state}] = true
}

// pump is cell.pump.
func (m *laneModel) pump() {
	for range 5 + 2*len(m.items) {
		if m.look(); !m.execute() {
			return
		}
	}
	m.Fatalf("the lane does not come to rest in state %s", laneStates[m.state])
}

// look sets the fields that cell.view reads.
func (m *laneModel) look() {
	if it := m.firstQueued(); it != nil {
		m.v.behind, m.v.large = m.v.replay == noReplay && m.behind(it), len(it.event.Payload) > 0
		if m.outstanding == 0 {
			m.v.part = Partition{Topic: it.topic}
		}
	}
	if m.v.rejecting = m.v.rejecting && m.outstanding > 0; m.v.why == nil {
		m.v.why = kerr.NetworkException
	}
}

// execute is cell.execute.
func (m *laneModel) execute() (again bool) {
	s := m.decide(&m.v, m.now)
	m.wants = s.why
	switch s.do {
	case actRetryLater, actHold:
		s.until = m.now.Add(time.Second)
	}
	it := m.firstQueued()
	m.change(func() { m.apply(&s) })
	switch s.do {
	case actSend:
		m.sends(it)
		m.queue.sent(it, m.v.part, m.v.large, m.now)
		m.sent = append(m.sent, it)
		return true
	case actProbe:
		m.v.probe = ownProbe
		return true
	case actRetry, actSuspect, actGiveUp, actSpill:
		return true
	case actDelay, actRetryLater, actHold:
		m.wants = forTime
	case actMakeTopic:
		m.making = true
	case actPostpone:
		m.items, m.log = m.items[:slices.Index(m.items, it)], true
	case actDeadLetter:
		m.wants, m.begins = forWrite, true
	case actEnd, actEndReplay:
		m.wants = forStop
	}
	if m.v.probe == ownProbe && m.state != laneSuspect {
		m.v.probe = noProbe
	}
	return false
}

// write begins the next dead letter, as cell.beginDeadLetter does.
func (m *laneModel) write() {
	it := m.firstQueued()
	if m.look(); it != nil && m.err == nil {
		s := m.decideDeadLetter(it, &m.v)
		if it.cause = s.cause; s.do == actDeadLetter {
			m.explains(it)
			m.writes = it
			return
		}
	}
	m.change(m.written)
	m.pump()
}

// leave removes a settled item from the queue.
func (m *laneModel) leave(it *item) {
	it.state = acked
	if i := slices.Index(m.items, it); i > 0 {
		m.items = slices.Delete(m.items, i, i+1)
	}
	m.pop()
}

// back is a result of the producer: of its first record, or rejected of its last.
func (m *laneModel) back(err error, rejected bool) {
	at := 0
	if rejected {
		at = len(m.sent) - 1
	}
	it := m.sent[at]
	m.sent = slices.Delete(m.sent, at, at+1)
	switch {
	case rejected:
		m.rejected(it)
	case err != nil:
		m.broken = err
		if refused := failure.Classify(err) == failure.Permanent; refused && m.state == laneSuspect {
			defer func() {
				if m.state == laneSuspect {
					m.Fatalf("event %d is refused alone, and sent again immediately", it.event.Sequence)
				}
			}()
		}
		m.change(func() { m.returned(it, err) })
	default:
		m.topic = append(m.topic, it.event.Sequence)
		m.change(func() {
			if m.acknowledged() {
				m.v.probe = noProbe
			}
		})
		if m.leave(it); m.v.replay != noReplay {
			m.change(func() { m.state.on(laneOver) })
		}
	}
	if len(m.sent) == 0 {
		m.broken = nil
	}
	m.pump()
}

func (m *laneModel) offer(t *rapid.T) {
	if m.log || m.v.replay != noReplay && m.next > 0 {
		return
	}
	m.next++
	it := &item{topic: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "topic"), event: outbox.Event{Sequence: m.next}}
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0:
		it.topicErr = &failure.TopicError{}
	case 1:
		it.event.DeliverAt = m.now.Add(time.Minute)
	case 2:
		it.event.Payload = []byte("large")
	}
	m.items = append(m.items, it)
	m.pump()
}

// shake changes one thing of the world.
func (m *laneModel) shake(t *rapid.T) {
	on := rapid.Bool().Draw(t, "on")
	switch rapid.IntRange(0, 10).Draw(t, "thing") {
	case 0:
		m.v.breaker = rapid.SampledFrom([]BreakerState{BreakerClosed, BreakerHalfOpen, BreakerOpen}).Draw(t, "breaker")
	case 1:
		m.v.full, m.v.silent = on, 0
	case 2:
		m.v.busy = on
	case 3:
		m.v.ready = on
	case 4:
		m.v.spills = on
	case 5:
		m.v.chased, m.v.undecided = on, !on
	case 6:
		m.v.rejecting = on
	case 7:
		if m.v.probe != ownProbe {
			m.v.probe = map[bool]probeOf{true: otherProbe}[on]
		}
	case 8:
		m.v.gated = m.v.gated || rapid.IntRange(0, 9).Draw(t, "gate") == 0
	case 9:
		if m.v.silent = 0; on {
			m.v.full, m.v.silent = true, time.Minute
		}
	case 10:
		if m.v.replay != noReplay && rapid.IntRange(0, 9).Draw(t, "claim") == 0 {
			m.v.replay = claimLost
		}
	}
	m.pump()
}

// result lets the producer return a record.
func (m *laneModel) result(t *rapid.T) {
	switch kind := rapid.IntRange(0, 4).Draw(t, "result"); {
	case len(m.sent) == 0:
	case m.broken != nil:
		m.back(m.broken, false)
	case kind == 0:
		m.back(rapid.SampledFrom(modelErrors).Draw(t, "error"), false)
	case kind == 1 && len(m.sent) > 1:
		m.v.rejecting = true
		m.back(errors.New("rejected"), true)
	default:
		m.back(nil, false)
	}
}

// tick lets time pass.
func (m *laneModel) tick(d time.Duration) {
	if m.now = m.now.Add(d); !m.until.After(m.now) {
		m.change(func() { m.wake(m.until) })
	}
	m.pump()
}

// store begins or ends the write of a dead letter.
func (m *laneModel) store() {
	it := m.writes
	if it == nil {
		if m.begins {
			m.begins = false
			m.write()
		}
		return
	}
	m.writes = nil
	m.chain = append(m.chain, it.event.Sequence)
	slices.Sort(m.chain)
	m.leave(it)
	m.write()
}

// made ends the look-up of a topic, which may be refused.
func (m *laneModel) made(refused bool) {
	if m.look(); m.making && refused && m.decide(&m.v, m.now).do == actMakeTopic {
		m.change(func() { m.fail(kerr.InvalidTopicException) })
	}
	m.making, m.v.ready = false, true
	m.pump()
}

// replay publishes the first dead letter, unless the producer has an earlier event.
func (m *laneModel) replay() {
	if len(m.chain) > 0 && m.v.breaker != BreakerOpen && m.chain[0] == int64(len(m.topic))+1 {
		m.topic, m.chain = append(m.topic, m.chain[0]), m.chain[1:]
		m.pump()
	}
}

// pass lets something else happen.
func (m *laneModel) pass(t *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		m.tick(10 * time.Second)
	case 1:
		m.store()
	case 2:
		m.made(rapid.Bool().Draw(t, "refused"))
	case 3:
		m.replay()
	}
}

// heal ends all troubles, and then everything is published.
func (m *laneModel) heal(t *rapid.T) {
	m.v = view{table: m.v.table, replay: m.v.replay, attempts: m.v.attempts, ready: true, gated: m.v.gated, probe: m.v.probe}
	if m.v.probe == otherProbe {
		m.v.probe = noProbe
	}
	for range 20 * (m.next + 1) {
		for m.tick(time.Minute); len(m.sent) > 0; {
			m.back(m.broken, false)
		}
		m.store()
		m.made(false)
		m.replay()
		if m.check(t); len(m.items) == 0 && len(m.chain) == 0 {
			return
		}
		if front := m.firstQueued(); m.state == laneEnded || m.log || front != nil && front.topicErr != nil && !m.v.table {
			return
		}
	}
	m.Fatalf("%d events are left in state %s, waiting for reason %d, and dead letters %v", len(m.items), laneStates[m.state], m.wants, m.chain)
}

// The decisions about an aggregate's events satisfy the specification, whatever happens to it.
func TestDecide_Model(t *testing.T) {
	seen := make(map[[2]laneState]bool)
	rapid.Check(t, func(t *rapid.T) {
		m := &laneModel{T: t, seen: seen, now: time.Unix(0, 0)}
		m.v = view{ready: true, table: rapid.IntRange(0, 3).Draw(t, "table") > 0, attempts: 3, spills: true}
		if rapid.IntRange(0, 5).Draw(t, "replay") == 0 {
			m.v.replay, m.v.table = claimed, true
		}
		t.Repeat(map[string]func(*rapid.T){"": m.check, "offer": m.offer, "shake": m.shake, "result": m.result, "pass": m.pass})
		m.heal(t)
	})
	for _, x := range laneTransitions {
		if !seen[[2]laneState{x.from, x.to}] {
			t.Errorf("no lane went from %s to %s: %s", laneStates[x.from], laneStates[x.to], x.by)
		}
	}
	for x := range seen {
		if x[0] != x[1] && !slices.ContainsFunc(laneTransitions, func(l laneTransition) bool { return l.from == x[0] && l.to == x[1] }) {
			t.Errorf("a lane went from %s to %s", laneStates[x[0]], laneStates[x[1]])
		}
	}
}
