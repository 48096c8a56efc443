package publish

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// WriteConcurrency is how many dead letters are written at the same time.
const WriteConcurrency = 64

// Metadata of a dead letter.
const (
	metaIDText        = "id_text"        // where the table keeps ids as text or as numbers
	metaAggregateText = "aggregate_text" // so too
	metaCaptured      = "captured"       // who found the event, as outbox.HeaderCaptured has it
	metaBadRow        = "bad_row"        // the letter has what could be read of a row; a replay reads the row again
)

var errBreakerOpen = errors.New("the breaker is open")

// classOf is the class of a dead letter that died of err.
func classOf(err error) string {
	if _, ok := errors.AsType[*outbox.RowError](err); ok {
		return ClassUndecodable
	}
	if _, ok := errors.AsType[*failure.TopicError](err); ok {
		return ClassTopicRefused
	}
	switch {
	case errors.Is(err, errBreakerOpen):
		return ClassBreakerOpen
	case tooLarge(err):
		return ClassTooLarge
	case failure.IsTopicRefused(err), errors.Is(err, kerr.PolicyViolation):
		return ClassTopicRefused
	case failure.Classify(err) == failure.Permanent:
		return ClassRefused
	default:
		return ClassAttemptsUsed
	}
}

// bury makes a dead letter of the lane's front item. Called locked, with nothing outstanding.
func (p *Publisher) bury(l *lane, err error) {
	front := l.items[0]
	front.death = &death{class: classOf(err), err: err}
	l.failed, l.suspect = nil, false
	p.write(l)
}

// mayWrite says whether the front item becomes a dead letter: because it died,
// because one before it in its aggregate did, or because the breaker is open
// and spills. Called locked.
func (p *Publisher) mayWrite(l *lane, it *item) bool {
	if l.ended != nil || !p.letters.on() {
		return false
	}
	if it.death != nil && it.death.class == ClassBehind && l.outstanding == 0 {
		it.death = nil // the producer has nothing before it any more
	}
	if it.death != nil && it.death.class != ClassBreakerOpen {
		return true
	}
	it.death = nil // whether it is spilled is decided when it is its turn to be written
	behind := p.letters.blocks(l.id) && !p.cfg.relaxed(it.event.Type)
	switch p.breaker.status.State {
	case BreakerHalfOpen:
		return false // it will be known soon
	case BreakerOpen:
		if !p.cfg.Spill || p.letters.spilled+p.letters.writing >= p.cfg.SpillLimit {
			return false
		}
		if !behind {
			it.death = &death{class: ClassBreakerOpen, err: fmt.Errorf("%w: %w", errBreakerOpen, p.breaker.status.Why())}
		}
		return true
	}
	if c := p.letters.chains[l.id]; behind && c.draining && len(c.letters) <= maxChase {
		return false // they are on their way out: the event can wait for its turn
	}
	return behind
}

// maxChase is how many dead letters may be left of a chain that is being
// replayed when later events stop to queue up behind it as dead letters.
const maxChase = 100

// write writes dead letters from the lane's front, as long as there are any.
// Called locked, with nothing outstanding.
func (p *Publisher) write(l *lane) {
	if l.writing || p.closed || p.cfg.fenced() {
		return
	}
	l.writing, l.suspect = true, false
	p.endProbe(l)
	p.wg.Go(func() {
		select {
		case p.burying <- struct{}{}:
			defer func() { <-p.burying }()
		case <-p.ctx.Done():
			return
		}
		for p.writeFront(l) {
		}
	})
}

// writeFront writes a dead letter and says whether to go on.
func (p *Publisher) writeFront(l *lane) bool {
	p.mu.Lock()
	if p.closed || p.cfg.fenced() {
		p.mu.Unlock()
		return false
	}
	it := l.firstQueued()
	if it == nil || l.failed != nil || !p.mayWrite(l, it) {
		l.writing = false
		p.pump(l)
		p.rest(l)
		p.mu.Unlock()
		return false
	}
	key, strict := l.id, !p.cfg.relaxed(it.event.Type)
	if !strict {
		key = it.event.ID
	}
	behind := strict && (p.letters.blocks(l.id) || l.outstanding > 0)
	letter := p.letterOf(it, behind)
	spill := p.breaker.status.State == BreakerOpen || letter.ErrorClass == ClassBreakerOpen || letter.ErrorClass == ClassAttemptsUsed
	p.letters.writing++
	p.mu.Unlock()

	status, err := p.store(letter)

	p.mu.Lock()
	p.letters.writing--
	if err != nil { // the relay stops; the checkpoint does not pass the event
		p.mu.Unlock()
		return false
	}
	delete(p.letters.begun, it.event.ID)
	if status.Open() {
		at := notBefore(atOf(letter.Strategy, letter.NextAttempt), it.event.DeliverAt)
		group := p.letters.group(letter.Rule, letter.FailureKey)
		p.letters.add(key, strict, letterRef{id: it.event.ID, seq: it.event.Sequence, at: at, group: group}, spill)
	} else {
		p.remembered(it, false) // it was a dead letter before, which is settled and may be restored
	}
	p.Metrics.buried.WithLabelValues(letter.ErrorClass).Inc()
	p.release(l)
	p.settle(l, it, false)
	if !behind {
		p.wake()
	}
	p.mu.Unlock()
	p.budget.Give(it.bytes)

	log, text := p.log.Warn, "event is a dead letter"
	if letter.ErrorClass == ClassBehind || letter.ErrorClass == ClassBreakerOpen {
		log = p.log.Debug // there may be thousands; the breaker and the head of the chain were said
	}
	log(text, "event_id", it.event.ID, "aggregate_id", l.id, "seq", it.event.Sequence, "topic", it.topic,
		"class", letter.ErrorClass, "strategy", letter.Strategy, "err", letter.ErrorText, trace.Attrs(letter.Headers))
	return true
}

// store writes the letter, however long the database is away or refuses it. Only an
// attempt takes the caller's place among those that write: a letter that can never be
// stored delays nothing but its own aggregate. The error says that the relay stops.
func (p *Publisher) store(letter *dlq.DeadLetter) (dlq.Status, error) {
	defer p.unstored(letter.EventID, nil)
	for attempt := 1; ; attempt++ {
		status, err := p.letters.store.Write(p.ctx, letter)
		if err == nil {
			return status, nil
		}
		if p.ctx.Err() != nil || p.cfg.fenced() {
			return "", errors.Join(failure.ErrStopping, err)
		}
		p.Metrics.buryErrors.Inc()
		if e := letter.Metadata[metaIDText]; e != "" {
			err = fmt.Errorf("event id %q: %w", e, err)
		}
		p.unstored(letter.EventID, err)
		p.log.Warn("cannot write a dead letter; trying again", "event_id", letter.EventID, "attempt", attempt, "err", err, trace.Attrs(letter.Headers))
		<-p.burying
		err = retry.Wait(p.ctx, retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt))
		p.burying <- struct{}{} // those who have a place leave when the context ends
		if err != nil {
			return "", errors.Join(failure.ErrStopping, err)
		}
	}
}

// UnstoredDeadLetter is an event whose dead letter could not be stored so far. No checkpoint
// passes the event, and later ones of its aggregate wait.
type UnstoredDeadLetter struct {
	EventID gocql.UUID
	Since   time.Time
	Err     error
}

// unstored notes why the event's dead letter could not be stored; nil is that it was, or
// that the relay stops.
func (p *Publisher) unstored(event gocql.UUID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.unwritten, event)
		return
	}
	u, ok := p.unwritten[event]
	if !ok {
		u = UnstoredDeadLetter{EventID: event, Since: time.Now()}
	}
	u.Err = err
	p.unwritten[event] = u
}

// oldestUnstored returns how many dead letters could not be stored so far, and the one
// that has waited for longest. Called locked.
func (p *Publisher) oldestUnstored() (n int, oldest UnstoredDeadLetter) {
	for _, u := range p.unwritten {
		if oldest.Since.IsZero() || u.Since.Before(oldest.Since) {
			oldest = u
		}
	}
	return len(p.unwritten), oldest
}

// letterOf is the dead letter of an item. Called locked.
func (p *Publisher) letterOf(it *item, behind bool) *dlq.DeadLetter {
	e := &it.event
	now := time.Now().UTC().Truncate(time.Millisecond)
	if e.Sequence == 0 { // their order is that in which they died, also for a relay that reads them
		if !now.After(p.letters.died) {
			now = p.letters.died.Add(time.Millisecond)
		}
		p.letters.died = now
	}
	letter := &dlq.DeadLetter{
		Table: p.letters.table, EventID: e.ID, AggregateID: e.AggregateString(), AggregateType: e.AggregateType,
		EventType: e.Type, Sequence: e.Sequence, Payload: e.Payload, ContentType: e.ContentType, Headers: maps.Clone(e.Headers),
		CreatedAt: e.CreatedAt, DeliverAt: e.DeliverAt, WrittenAt: it.written, Topic: it.topic,
		Status: dlq.Pending, Attempts: it.attempts, FirstFailedAt: now, LastFailedAt: now,
		Metadata: map[string]string{
			"relay": p.cfg.ShardName, "source": p.cfg.Source, "host": self.Host(), "breaker": p.breaker.status.State.String(),
			"in_flight": fmt.Sprint(len(p.items)), metaCaptured: FoundBy[it.by],
		},
	}
	if e.IDText != "" {
		letter.Metadata[metaIDText] = e.IDText
	}
	if e.AggregateText != "" {
		letter.Metadata[metaAggregateText] = e.AggregateText
	}
	if _, ok := errors.AsType[*outbox.RowError](it.topicErr); ok {
		letter.Metadata[metaBadRow] = "true"
	}
	if it.written > 0 {
		letter.Metadata["lag"] = now.Sub(time.UnixMicro(it.written)).Round(time.Millisecond).String()
	}
	d := it.death
	switch {
	case it.topicErr != nil: // whatever else stops it, as it is it can never be published
		d = &death{class: classOf(it.topicErr), err: it.topicErr}
	case d == nil:
		d = &death{class: ClassBehind, err: ErrBehind}
	}
	letter.ErrorClass, letter.ErrorText, letter.ErrorChain = d.class, d.err.Error(), chainOf(d.err)
	letter.ErrorCode = codeOf(d.err)
	if behind {
		letter.Status = dlq.Parked
		letter.Strategy = dlq.StrategyFollow
		return letter
	}
	if d.class == ClassInterrupted { // it has not failed, so no rule is asked
		letter.Strategy = dlq.StrategyBreakerClose
		return letter
	}
	choice := p.cfg.Rules.Choose(&dlq.Subject{
		ErrorClass: letter.ErrorClass, ErrorCode: letter.ErrorCode, EventType: e.Type, AggregateType: e.AggregateType, Table: letter.Table,
		FirstFailedAt: now,
	}, now)
	letter.Rule, letter.Strategy, letter.NextAttempt = choice.Rule, choice.Strategy, choice.NextAttempt
	letter.FailureKey, letter.FailureRepeats = dlq.FailureKey(letter.ErrorClass, letter.ErrorCode, letter.ErrorText), 1
	if letter.Strategy == dlq.StrategyManual {
		letter.Status, letter.Waiting = dlq.Manual, "another attempt cannot help"
		if choice.Rule != dlq.RuleNeedsAPerson {
			letter.Waiting = "by the rule " + choice.Rule
		}
	}
	return letter
}

// ErrBehind is the reason of a dead letter that follows another one of its aggregate.
var ErrBehind = errors.New("an earlier event of the aggregate is a dead letter")

// chainOf is the texts of an error and those that it wraps, outermost first.
func chainOf(err error) []string {
	var out []string
	var walk func(error)
	walk = func(err error) {
		if err == nil || len(out) == 20 {
			return
		}
		out = append(out, err.Error())
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	return out
}

// codeOf is the broker's name of the error, empty if it is none of the broker's.
func codeOf(err error) string {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return ke.Message
	}
	return ""
}

// settle ends an item that is out or a dead letter. Called locked.
func (p *Publisher) settle(l *lane, it *item, published bool) {
	it.state = acked
	if i := slices.Index(l.items, it); i > 0 { // behind records that the producer has
		l.items = slices.Delete(l.items, i, i+1)
	}
	l.pop()
	// Settled before it counts as done, and under the lock: who waits for the
	// last event saves the checkpoints next.
	for _, f := range it.settled {
		f()
	}
	delete(p.items, it.event.ID)
	p.bytes -= it.bytes
	if published {
		p.remembered(it, true)
	}
}

// remembered notes that the event counts as published, and whether it is in its topic.
// Called locked.
func (p *Publisher) remembered(it *item, in inTopic) {
	if it.scanned {
		return // it will not be offered again
	}
	if it.shown {
		p.memory.shownAs(it.event.ID, it.written, in)
	} else {
		p.memory.addAs(it.event.ID, it.written, in)
	}
}
