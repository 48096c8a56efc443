package publish

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Conflict is a defect of a writer that the relay cannot repair: events that contradict each
// other.
type Conflict struct {
	// What is the contradiction, with the aggregate and the event.
	What string
	At   time.Time
}

// conflictReported is the time for which a conflict is a readiness problem.
const conflictReported = time.Hour

// place is the place of an event in the table.
type place struct {
	id, aggregate outbox.ID
	sequence      int64
}

// maxReported limits the events of which it is known that they were reported.
const maxReported = 1000

// conflicts counts events that contradict others of the table. It is safe for concurrent use.
type conflicts struct {
	log        *slog.Logger
	count, ids prometheus.Counter // of sequence numbers and of event ids
	last       atomic.Pointer[Conflict]
	ofIDs      struct {
		sync.Mutex
		reported map[place]bool // the last events of idTwice, at most maxReported
	}
	// suspects has room for one event whose id may be that of another event.
	suspects chan cdclog.StoredEvent
}

// verifyEvery is the least interval between two reads for suspects.
const verifyEvery = 10 * time.Second

// suspect requests a read for the event, unless one is in progress.
func (c *conflicts) suspect(o *Offer) {
	select {
	case c.suspects <- cdclog.StoredEvent{Event: o.Event, Written: o.Written}:
	default:
	}
}

// isUnexplained reports whether the id of the event is in the dedup index or that of a dead
// letter, while nothing shows that the event was accepted in its aggregate: another event may have
// that id, or the line of the aggregate is forgotten.
func (c *cell) isUnexplained(o *Offer) bool {
	if o.Bad != nil || o.Written == 0 {
		return false
	}
	l, known := c.line(o.Event.AggregateID.UUID())
	if known && (o.Event.Sequence > 0 && o.Event.Sequence < l.Next || o.Event.Sequence == 0 && o.Written <= l.Next) {
		return false
	}
	_, published, _ := c.ids.find(o.Event.ID.UUID())
	return published || c.dead.Has(o.Event.ID.UUID())
}

// verifySuspects looks for other events with the ids of suspects, until p is closed.
func (p *Publisher) verifySuspects() {
	for {
		select {
		case f := <-p.conflicts.suspects:
			if twice, err := p.hasIDOfAnother(&f); err == nil && twice {
				p.conflicts.idTwice(&f.Event)
			}
		case <-p.ctx.Done():
			return
		}
		if retry.Wait(p.ctx, verifyEvery) != nil {
			return
		}
	}
}

// hasIDOfAnother reports whether another event with the id of f is a dead letter, or one of the
// newest records, and f is neither.
func (p *Publisher) hasIDOfAnother(f *cdclog.StoredEvent) (bool, error) {
	l, err := p.DeadLetter(p.ctx, f.ID.UUID())
	if l != nil || err != nil {
		return l != nil && isOfAnother(l, &f.Event), err
	}
	return p.proofs.FindIDOfAnother(p.ctx, f)
}

// isOfAnother reports whether the dead letter is of another event than e, which has its id.
func isOfAnother(l *dlq.DeadLetter, e *outbox.Event) bool {
	return !l.MayBelongTo(e.AggregateID.String()) || l.Sequence > 0 && l.Sequence != e.Sequence
}

// idTwice reports that an event is not published because another event has its id.
func (c *cell) idTwice(e *outbox.Event) {
	of := *e
	c.report(func(to *Publisher) { to.conflicts.idTwice(&of) })
}

// numberTwice reports that an event is published whose number another event had.
func (c *cell) numberTwice(e *outbox.Event) {
	of := *e
	c.report(func(to *Publisher) { to.conflicts.numberTwice(&of) })
}

// afterRestore is the advice for numbers that are given again.
const afterRestore = " (if the database was restored, begin an epoch with outbox schema new-epoch)"

// numberTwice records that an event is published whose number another event had.
func (c *conflicts) numberTwice(e *outbox.Event) {
	c.record(c.count, "a sequence number is given to a second event, which is published after later ones", e, fmt.Sprintf("number %d has two events", e.Sequence)+afterRestore, e.Sequence)
}

// numbersAgain records that the numbers of an aggregate begin again before next.
func (c *conflicts) numbersAgain(e *outbox.Event, from, next int64) {
	c.record(c.count, "the numbers of an aggregate begin again: its rows are new events", e, fmt.Sprintf("its numbers begin again with %d after %d", from, next-1)+afterRestore, from)
}

// idTwice records that an event is not published because another event has its id. Each reader finds
// the row again; it counts once.
func (c *conflicts) idTwice(e *outbox.Event) {
	at := place{e.ID, e.AggregateID, e.Sequence}
	c.ofIDs.Lock()
	again := c.ofIDs.reported[at]
	if c.ofIDs.reported == nil || len(c.ofIDs.reported) == maxReported && !again {
		c.ofIDs.reported = make(map[place]bool)
	}
	c.ofIDs.reported[at] = true
	c.ofIDs.Unlock()
	if again {
		return
	}
	what := fmt.Sprintf("event %s, number %d, has the id of another event and is not published: a writer gave the id to both, or repeated AppendNext with an event that it computed again, without SearchFrom", e.ID.String(), e.Sequence)
	c.record(c.ids, "an event is not published: another event has its id", e, what, e.Sequence)
}

func (c *conflicts) record(count prometheus.Counter, msg string, e *outbox.Event, what string, seq int64) {
	count.Inc()
	c.log.Error(msg, "aggregate_id", e.AggregateID.String(), "event_id", e.ID.String(), "sequence", seq)
	c.last.Store(&Conflict{What: fmt.Sprintf("aggregate %s: %s", e.AggregateID.String(), what), At: time.Now()})
}

// Conflict returns the last conflict if it is more recent than conflictReported, else nil.
func (p *Publisher) Conflict(now time.Time) *Conflict {
	if c := p.conflicts.last.Load(); c != nil && now.Sub(c.At) < conflictReported {
		return c
	}
	return nil
}
