package publish

import (
	"cmp"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// adopt brings the state of a dead letter that another process changed in line with
// the table.
func (r *Replayer) adopt(id gocql.UUID) {
	ctx := r.p.ctx
	for attempt := 1; ; attempt++ {
		l, err := r.p.cfg.DeadLetters.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound):
			r.log.Warn("dead letter not found, continuing with its chain", "event_id", id)
			r.drop(id)
			return
		case err == nil:
			e := l.Entry()
			r.p.ask(func(c *cell) {
				c.follow(&e, "", r.Own)
				// Not immediately: two workers would keep taking the dead letter from each other.
				soon := c.deadLetterTime().Add(time.Second).UnixMilli()
				c.dead.Change(id, func(ref *chains.Ref) {
					if ref.At != chains.AtOperator {
						ref.At = max(ref.At, soon)
					}
				})
			})
			return
		case ctx.Err() != nil:
			r.later(id, chains.AtOperator)
			return
		}
		r.log.Warn("failed to read dead letter, retrying", "event_id", id, "attempt", attempt, "err", err)
		_ = retry.Wait(ctx, retry.Required(r.p.cfg.RetryMin, r.p.cfg.RetryMax, attempt))
	}
}

// follow brings the state of a dead letter in line with the table after the action of an
// operator, empty for none. A requested replay stays requested when its priority is set. own is the
// relay's part of the table.
func (c *cell) follow(e *dlq.ChainEntry, action dlq.Action, own *cdclog.Portion) {
	if !e.Status.Open() {
		c.settled(e.EventID, cmp.Or(e.WrittenAt, c.deadLetterTime().UnixMicro()))
		return
	}
	if !own.All() && chains.ByItself(e.EventID, e.AggregateID) {
		c.takeIn(e) // the relay of the stream's shard has written it
	}
	if e.Unblocked {
		c.takeIn(e)
		c.dead.Loosen(e.EventID, chains.AtOperator)
	}
	c.dead.Change(e.EventID, func(ref *chains.Ref) {
		ref.Group = c.dead.Group(e.Rule, e.FailureKey)
		asked := action.Publishes() || action == dlq.ActionSet && ref.Asked
		ref.Asked, ref.Priority = asked, int8(e.Priority)
		ref.At = chains.AtOfEntry(e, asked)
		if asked && ref.Group != nil {
			ref.Group.Wanted()
		}
	})
}

// takeIn adds a dead letter that the relay does not have: it was restored from the
// archive. A known dead letter is unchanged. e may be older than the state of the relay,
// and open although this relay settled the dead letter. That one then cannot be claimed.
// The event stays in the dedup index, which does not prevent its replay unless the event is
// known to be in its topic.
func (c *cell) takeIn(e *dlq.ChainEntry) {
	if c.dead.Has(e.EventID) {
		return
	}
	c.dead.Add(outbox.IDFromUUID(e.EventID), false, chains.Ref{ID: e.EventID, Seq: e.Sequence, At: chains.AtOperator, Group: c.dead.Group(e.Rule, e.FailureKey), Priority: int8(e.Priority), First: e.FirstFailedAt.UnixMilli()},
		chains.IsSpillClass(e.ErrorClass))
}

// drop removes a settled dead letter.
func (r *Replayer) drop(id gocql.UUID) {
	r.p.ask(func(c *cell) { c.settled(id, c.deadLetterTime().UnixMicro()) })
}

// settled removes a settled dead letter. Its event then counts as published, even if
// it is in no topic, because its row in the log may not have been read yet.
func (c *cell) settled(id gocql.UUID, written int64) {
	c.dead.Remove(id)
	c.ids.addUnsent(id, written)
}

// later sets when a dead letter is due.
func (r *Replayer) later(id gocql.UUID, at int64) {
	r.p.ask(func(c *cell) { c.dead.Change(id, func(ref *chains.Ref) { ref.At = at }) })
}
