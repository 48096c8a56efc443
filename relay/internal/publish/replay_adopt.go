package publish

import (
	"cmp"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// adopt does with a letter as the table says now: somebody else changed it.
func (r *replayer) adopt(id gocql.UUID) {
	ctx := r.p.ctx
	for attempt := 1; ; attempt++ {
		l, err := r.p.letters.store.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound):
			r.log.Warn("a dead letter is gone; its chain goes on", "event_id", id)
			r.drop(id)
			return
		case err == nil:
			e := l.Entry()
			r.p.mu.Lock()
			r.follow(&e, false)
			// Not at once: two who take the letter from each other would do nothing else.
			soon := time.Now().Add(time.Second).UnixMilli()
			r.p.letters.set(id, func(ref *letterRef) {
				if ref.at != atOperator {
					ref.at = max(ref.at, soon)
				}
			})
			r.p.mu.Unlock()
			return
		case ctx.Err() != nil:
			r.later(id, atOperator)
			return
		}
		r.log.Warn("cannot read a dead letter; trying again", "event_id", id, "attempt", attempt, "err", err)
		_ = retry.Wait(ctx, r.p.cfg.askAgain(attempt))
	}
}

// follow brings what the relay knows of a letter in line with the table; asked
// says that an operator wants it replayed. Called locked.
func (r *replayer) follow(e *dlq.ChainEntry, asked bool) {
	d := r.p.letters
	if !e.Status.Open() {
		r.p.dropLetter(e.EventID, cmp.Or(e.WrittenAt, time.Now().UnixMicro()))
		return
	}
	if !r.Own.All() && byItself(e.EventID, e.AggregateID) {
		r.takeIn(e) // the relay of the stream's shard has buried it
	}
	if e.Released {
		r.takeIn(e)
		d.loosen(e.EventID, atOperator)
	}
	d.set(e.EventID, func(ref *letterRef) {
		ref.group = d.group(e.Rule, e.FailureKey)
		ref.asked = asked
		ref.at = notBefore(atOfEntry(e, asked), e.DeliverAt)
		if asked && ref.group != nil {
			ref.group.wanted()
		}
	})
}

// takeIn adds a letter that the relay does not hold: it was restored from the
// archive. What it holds stays as it is. e may be older than what the relay did
// since, and say that a letter is open which this relay settled: then it cannot
// be claimed, and what is in its topic stays in memory. Called locked.
func (r *replayer) takeIn(e *dlq.ChainEntry) {
	d := r.p.letters
	if d.has(e.EventID) {
		return
	}
	// While it was archived its event counted as out. Now it must be published.
	r.p.memory.forgetUnsent(e.EventID)
	d.add(e.EventID, false, letterRef{id: e.EventID, seq: e.Sequence, at: atOperator, group: d.group(e.Rule, e.FailureKey)},
		e.ErrorClass == ClassBreakerOpen || e.ErrorClass == ClassAttemptsUsed)
}

// drop forgets a letter that is settled.
func (r *replayer) drop(id gocql.UUID) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.dropLetter(id, time.Now().UnixMicro())
}

// dropLetter forgets a letter that is settled. Its event counts as out, whether
// it was published or not: its row in the log may be still to come. Called locked.
func (p *Publisher) dropLetter(id gocql.UUID, written int64) {
	p.letters.remove(id)
	if !p.memory.has(id) {
		p.memory.addUnsent(id, written)
	}
}

// later sets when a letter is due.
func (r *replayer) later(id gocql.UUID, at int64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.letters.set(id, func(ref *letterRef) { ref.at = at })
}

// byItself says that a letter is of a row that does not say its place in its
// aggregate, or not even its aggregate: it stands for one of its own (badRow). The
// relay whose stream has the row buries it, and that of the shard of its id replays
// it: what nothing is known of but its id belongs there.
func byItself(event gocql.UUID, aggregate string) bool { return aggregate == event.String() }
