package publish

import (
	"cmp"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// adopt brings the state of a dead letter that another process changed in line with
// the table.
func (r *Replayer) adopt(id gocql.UUID) {
	ctx := r.p.ctx
	for attempt := 1; ; attempt++ {
		l, err := r.p.table.store.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound):
			r.log.Warn("dead letter not found, continuing with its chain", "event_id", id)
			r.drop(id)
			return
		case err == nil:
			e := l.Entry()
			r.p.mu.Lock()
			r.followLocked(&e, "")
			// Not immediately: two workers would keep taking the dead letter from each other.
			soon := r.p.now().Add(time.Second).UnixMilli()
			r.p.mu.deadLetters.Change(id, func(ref *chains.Ref) {
				if ref.At != chains.AtOperator {
					ref.At = max(ref.At, soon)
				}
			})
			r.p.mu.Unlock()
			return
		case ctx.Err() != nil:
			r.later(id, chains.AtOperator)
			return
		}
		r.log.Warn("failed to read dead letter, retrying", "event_id", id, "attempt", attempt, "err", err)
		_ = retry.Wait(ctx, retry.Required(r.p.cfg.RetryMin, r.p.cfg.RetryMax, attempt))
	}
}

// followLocked brings the state of a dead letter in line with the table after the action of an
// operator, empty for none. A requested replay stays requested when its priority is set.
func (r *Replayer) followLocked(e *dlq.ChainEntry, action dlq.Action) {
	d := r.p.mu.deadLetters
	if !e.Status.Open() {
		r.settledLocked(e.EventID, cmp.Or(e.WrittenAt, r.p.now().UnixMicro()))
		return
	}
	if !r.Own.All() && chains.ByItself(e.EventID, e.AggregateID) {
		r.takeInLocked(e) // the relay of the stream's shard has written it
	}
	if e.Unblocked {
		r.takeInLocked(e)
		d.Loosen(e.EventID, chains.AtOperator)
	}
	d.Change(e.EventID, func(ref *chains.Ref) {
		ref.Group = d.Group(e.Rule, e.FailureKey)
		asked := action.Publishes() || action == dlq.ActionSet && ref.Asked
		ref.Asked, ref.Priority = asked, int8(e.Priority)
		ref.At = chains.AtOfEntry(e, asked)
		if asked && ref.Group != nil {
			ref.Group.Wanted()
		}
	})
}

// takeInLocked adds a dead letter that the relay does not have: it was restored from the
// archive. A known dead letter is unchanged. e may be older than the state of the relay,
// and open although this relay settled the dead letter. That one then cannot be claimed.
// The event stays in the dedup index, which does not prevent its replay unless the event is
// known to be in its topic.
func (r *Replayer) takeInLocked(e *dlq.ChainEntry) {
	d := r.p.mu.deadLetters
	if d.Has(e.EventID) {
		return
	}
	d.Add(outbox.IDFromUUID(e.EventID), false, chains.Ref{ID: e.EventID, Seq: e.Sequence, At: chains.AtOperator, Group: d.Group(e.Rule, e.FailureKey), Priority: int8(e.Priority), First: e.FirstFailedAt.UnixMilli()},
		chains.IsSpillClass(e.ErrorClass))
}

// drop removes a settled dead letter.
func (r *Replayer) drop(id gocql.UUID) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.settledLocked(id, r.p.now().UnixMicro())
}

// settledLocked removes a settled dead letter. Its event then counts as published, even if
// it is in no topic, because its row in the log may not have been read yet.
func (r *Replayer) settledLocked(id gocql.UUID, written int64) {
	r.p.mu.deadLetters.Remove(id)
	r.p.ids.addUnsent(id, written)
}

// later sets when a dead letter is due.
func (r *Replayer) later(id gocql.UUID, at int64) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.mu.deadLetters.Change(id, func(ref *chains.Ref) { ref.At = at })
}
