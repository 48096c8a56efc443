package publish

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/producer"
)

// WriteConcurrency is the maximum number of concurrent dead-letter writes.
const WriteConcurrency = 64

// Metadata of a dead letter.
const (
	metaIDText   = "id_text"  // event id, where the table stores ids as text or numbers
	metaCaptured = "captured" // the reader that found the event; values as in outbox.HeaderCaptured
)

var errBreakerOpen = errors.New("the breaker is open")

// classifyError returns the error class of a dead letter that err causes.
func classifyError(err error) string {
	if _, ok := errors.AsType[*rows.RowError](err); ok {
		return chains.ClassUndecodable
	}
	if _, ok := errors.AsType[*failure.TopicError](err); ok {
		return chains.ClassTopicInvalid
	}
	switch {
	case errors.Is(err, errBreakerOpen):
		return chains.ClassBreakerOpen
	case producer.IsTooLarge(err):
		return chains.ClassTooLarge
	case errors.Is(err, kerr.InvalidTopicException):
		return chains.ClassTopicInvalid
	case failure.IsTopicRefused(err):
		return chains.ClassTopicRefused
	case failure.Classify(err) == failure.Permanent:
		return chains.ClassRefused
	default:
		return chains.ClassAttemptsUsed
	}
}

// deadLetterWriter writes dead letters, one after the other for each aggregate. The cell decides
// about each; the writer is safe for concurrent use.
type deadLetterWriter struct {
	p     *Publisher
	slots chan struct{} // holds a token per dead letter being written
}

func newDeadLetterWriter(p *Publisher) deadLetterWriter {
	return deadLetterWriter{p: p, slots: make(chan struct{}, WriteConcurrency)}
}

// maxChase is the chain length up to which later events of the aggregate wait for
// a running replay in memory. Behind a longer chain they become dead letters.
const maxChase = 100

// start starts writing dead letters from the lane's front until the front item does not
// become one.
func (w deadLetterWriter) start(l *lane) {
	p := w.p
	p.wg.Go(func() {
		select {
		case w.slots <- struct{}{}:
			defer func() { <-w.slots }()
		case <-p.ctx.Done():
			return
		}
		for w.writeFront(l) {
		}
	})
}

// writtenDeadLetter is a dead letter of an item that is being written.
type writtenDeadLetter struct {
	*dlq.DeadLetter
	lane           *lane
	item           *item
	strict, behind bool
	spill          bool // it counts for Config.SpillLimit
}

// writeFront writes one dead letter and reports whether to continue.
func (w deadLetterWriter) writeFront(l *lane) bool {
	p := w.p
	var d *writtenDeadLetter
	p.ask(func(c *cell) { d = c.beginDeadLetter(l, &p.load) })
	if d == nil {
		return false
	}
	status, err := w.store(d.DeadLetter)
	other := errors.Is(err, dlq.ErrOtherRecord)
	p.ask(func(c *cell) {
		c.dead.writing--
		if err == nil || other { // else the relay stops; no checkpoint passes the event
			c.endDeadLetter(d, status.Open(), other)
		}
	})
	if other || err != nil {
		return other
	}

	it := d.item
	p.spans.Failed(&it.event, it.topic, d.ErrorClass, d.ErrorText, it.attempts, it.capture())
	log, text := p.log.Warn, "event is a dead letter"
	if d.ErrorClass == chains.ClassBehind || d.ErrorClass == chains.ClassBreakerOpen {
		log = p.log.Debug // there may be thousands; the cause is logged already
	}
	log(text, "event_id", it.event.ID, "aggregate_id", l.id, "sequence", it.event.Sequence, "topic", it.topic,
		"class", d.ErrorClass, "strategy", d.Strategy, "err", d.ErrorText, trace.Attrs(d.Headers))
	return true
}

// beginDeadLetter returns the dead letter of the lane's front, nil if that does not become one; then
// the lane continues.
func (c *cell) beginDeadLetter(l *lane, load *loadMeter) *writtenDeadLetter {
	if c.closed || c.cfg.fenced() {
		return nil
	}
	it := l.firstQueued()
	if !c.mayWrite(l, it) {
		l.written()
		c.pump(l)
		return nil
	}
	strict := !c.cfg.relaxed(it.event.Type)
	behind := strict && (c.isBehind(l, it) || l.outstanding > 0)
	d := c.newDeadLetter(it, behind, load)
	c.dead.writing++
	return &writtenDeadLetter{
		DeadLetter: d, lane: l, item: it, strict: strict, behind: behind,
		spill: c.calls.State() == BreakerOpen || d.ErrorClass == chains.ClassBreakerOpen || d.ErrorClass == chains.ClassAttemptsUsed,
	}
}

// endDeadLetter processes a dead letter that is stored, and is open or settled; other means that it
// is not, because another event has its id.
func (c *cell) endDeadLetter(d *writtenDeadLetter, open, other bool) {
	it := d.item
	delete(c.dead.begun, it.event.ID.UUID())
	switch {
	case open && !other:
		key := it.event.AggregateID
		if !d.strict {
			key = it.event.ID
		}
		at := chains.DueAt(d.Strategy, d.NextAttempt)
		group := c.dead.Group(d.Rule, d.FailureKey)
		c.dead.Add(key, d.strict, chains.Ref{ID: it.event.ID.UUID(), Seq: it.event.Sequence, At: at, Group: group, Priority: int8(d.Priority), First: d.FirstFailedAt.UnixMilli()}, d.spill)
		if it.cause != nil && it.cause.stalled && at > chains.AtOnce {
			c.waitForPartition(it.event.ID.UUID(), at)
		}
	default:
		c.ids.add(it, false) // its dead letter, or that of the other record, is settled; an operator may restore it
	}
	if other {
		c.idTwice(&it.event)
	} else {
		c.metrics.deadLetters.WithLabelValues(d.ErrorClass).Inc()
	}
	c.release(d.lane)
	c.settle(d.lane, it, false)
	if !d.behind {
		c.do(effect{do: effReplay})
	}
	c.budget.Give(it.bytes)
}

// mayWrite reports whether the item, the lane's front, still becomes a dead letter.
func (c *cell) mayWrite(l *lane, it *item) bool {
	if it == nil || l.err != nil {
		return false
	}
	v := c.view(l)
	s := l.decideDeadLetter(it, &v)
	it.cause = s.cause
	return s.do == actDeadLetter
}

// store writes the dead letter and retries until the database accepts it. It gives up
// its slot between attempts, so a dead letter that can never be stored
// delays only its own aggregate. It returns an error only if the relay stops, or dlq.ErrOtherRecord.
//
// The failure is dated by the attempt that stores it: jobs and notices list by that time, and
// must not take a dead letter of which they could not know for an older one.
func (w deadLetterWriter) store(deadLetter *dlq.DeadLetter) (dlq.Status, error) {
	p := w.p
	defer w.noteUnstored(deadLetter.EventID, nil)
	for attempt := 1; ; attempt++ {
		status, err := p.cfg.DeadLetters.Write(p.ctx, deadLetter)
		if err == nil || errors.Is(err, dlq.ErrOtherRecord) {
			return status, err
		}
		if p.ctx.Err() != nil || p.cfg.fenced() {
			return "", errors.Join(failure.ErrStopping, err)
		}
		p.Metrics.deadLetterErrors.Inc()
		if e := deadLetter.Metadata[metaIDText]; e != "" {
			err = fmt.Errorf("event id %q: %w", e, err)
		}
		w.noteUnstored(deadLetter.EventID, err)
		p.log.Warn("cannot write a dead letter; trying again", "event_id", deadLetter.EventID, "attempt", attempt, "err", err, trace.Attrs(deadLetter.Headers))
		<-w.slots
		err = retry.Wait(p.ctx, retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt))
		w.slots <- struct{}{} // cannot block for long: holders release their slots when the context ends
		if err != nil {
			return "", errors.Join(failure.ErrStopping, err)
		}
		p.ask(func(c *cell) {
			now := c.dead.failedAt(deadLetter.Sequence, c.deadLetterTime())
			deadLetter.FirstFailedAt, deadLetter.LastFailedAt = now, now
		})
	}
}

// UnstoredDeadLetter is an event whose dead letter is not stored yet because of an error.
// No checkpoint passes the event, and later events of its aggregate wait.
type UnstoredDeadLetter struct {
	EventID gocql.UUID
	Since   time.Time
	Err     error
}

// noteUnstored records the last error of storing the event's dead letter. nil removes the
// entry: the dead letter is stored, or the relay stops.
func (w deadLetterWriter) noteUnstored(event gocql.UUID, err error) {
	w.p.ask(func(c *cell) {
		if err == nil {
			delete(c.dead.unstored, event)
			return
		}
		u, ok := c.dead.unstored[event]
		if !ok {
			u = UnstoredDeadLetter{EventID: event, Since: c.now}
		}
		u.Err = err
		c.dead.unstored[event] = u
	})
}

// oldestUnstored returns the number of dead letters that are not stored yet, and the
// one that has waited longest.
func (d *deadLetters) oldestUnstored() (n int, oldest UnstoredDeadLetter) {
	for _, u := range d.unstored {
		if oldest.Since.IsZero() || u.Since.Before(oldest.Since) {
			oldest = u
		}
	}
	return len(d.unstored), oldest
}

// newDeadLetter returns the dead letter of an item; behind means that an earlier
// event of its aggregate blocks it.
func (c *cell) newDeadLetter(it *item, behind bool, load *loadMeter) *dlq.DeadLetter {
	e := &it.event
	now := c.dead.failedAt(e.Sequence, c.deadLetterTime())
	deadLetter := &dlq.DeadLetter{
		Table: c.cfg.tableName(), EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), AggregateType: e.AggregateType,
		EventType: e.Type, Sequence: e.Sequence, Payload: e.Payload, ContentType: e.ContentType, Headers: maps.Clone(e.Headers),
		CreatedAt: e.CreatedAt, DeliverAt: e.DeliverAt, WrittenAt: it.written, Topic: it.topic,
		Status: dlq.Pending, Attempts: it.attempts, FirstFailedAt: now, LastFailedAt: now, Priority: dlq.ParsePriority(e.Headers[outbox.HeaderPriority]),
		Metadata: map[string]string{
			"relay": c.cfg.ShardName, "source": c.cfg.Source, "host": self.Host(), "breaker": c.calls.State().String(),
			"in_flight": fmt.Sprint(c.ids.open), metaCaptured: FoundBy[it.by],
		},
	}
	load.addTo(deadLetter.Metadata)
	if !e.ID.IsUUID() {
		deadLetter.Metadata[metaIDText] = e.ID.String()
	}
	if _, ok := errors.AsType[*rows.RowError](it.topicErr); ok {
		deadLetter.Metadata[dlq.MetadataBadRow] = "true"
	}
	if it.written > 0 {
		deadLetter.Metadata["lag"] = now.Sub(time.UnixMicro(it.written)).Round(time.Millisecond).String()
	}
	d := it.cause
	switch {
	case it.topicErr != nil: // takes precedence: unchanged, the event can never be published
		d = &deadLetterCause{class: classifyError(it.topicErr), err: it.topicErr}
	case d == nil:
		d = &deadLetterCause{class: chains.ClassBehind, err: ErrBehind}
	}
	deadLetter.ErrorClass, deadLetter.ErrorText, deadLetter.ErrorChain = d.class, d.err.Error(), errorTexts(d.err)
	deadLetter.ErrorCode = brokerCode(d.err)
	if deadLetter.Metadata[dlq.MetadataBadRow] != "" && e.Sequence < 1 {
		deadLetter.ErrorText += "; " + fixUnnumberedRow
	}
	if behind {
		deadLetter.Status = dlq.Blocked
		deadLetter.Strategy = dlq.StrategyFollow
		return deadLetter
	}
	if d.class == chains.ClassInterrupted { // it has not failed, so no rule applies
		deadLetter.Strategy = dlq.StrategyBreakerClose
		return deadLetter
	}
	choice := c.cfg.Rules.Choose(&dlq.Subject{
		ErrorClass: deadLetter.ErrorClass, ErrorCode: deadLetter.ErrorCode, EventType: e.Type, AggregateType: e.AggregateType, Table: deadLetter.Table,
		FirstFailedAt: now,
	}, now)
	deadLetter.Rule, deadLetter.Strategy, deadLetter.NextAttempt = choice.Rule, choice.Strategy, choice.NextAttempt
	deadLetter.FailureKey, deadLetter.FailureRepeats = dlq.FailureKey(deadLetter.ErrorClass, deadLetter.ErrorCode, deadLetter.ErrorText), 1
	if deadLetter.Strategy == dlq.StrategyManual {
		deadLetter.Status, deadLetter.Waiting = dlq.Suspended, "another attempt cannot help"
		if choice.Rule != dlq.RuleNeedsAPerson {
			deadLetter.Waiting = "by the rule " + choice.Rule
		}
	}
	return deadLetter
}

// ErrBehind is the error of a blocked event's dead letter.
var ErrBehind = errors.New("an earlier event of the aggregate is a dead letter")

// errorTexts returns the texts of err and of the errors that it wraps, outermost first,
// 20 at most.
func errorTexts(err error) []string {
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

// brokerCode returns the broker's name of the error, or "" if it is not a broker error.
func brokerCode(err error) string {
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return ke.Message
	}
	return ""
}
