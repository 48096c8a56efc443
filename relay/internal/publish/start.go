package publish

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// OpenDeadLetters contains the open dead letters at the relay's start.
type OpenDeadLetters struct {
	entries []dlq.ChainEntry
	begun   map[gocql.UUID]struct{} // as deadLetters.begun
	// unknown are the dead letters of chains that follow an event of unknown outcome.
	unknown map[gocql.UUID]struct{}
	// Since is the start of the earliest replay with an unknown outcome, zero if there is
	// none. The topics from this time on show whether its event is published.
	Since time.Time
}

// untilRead calls read until it succeeds and reports cannot while it fails. It returns
// only errors of class Fatal and the cause of ctx's end.
type untilRead func(ctx context.Context, cannot string, read func() error) error

// minClockMargin is the minimum assumed difference between clocks.
const minClockMargin = 30 * time.Second

// LoadDeadLetters reads the open dead letters of the portion, so that they block later
// events of their aggregates again.
func LoadDeadLetters(ctx context.Context, p *Publisher, own *cdclog.Portion, until untilRead) (*OpenDeadLetters, error) {
	d := &OpenDeadLetters{}
	if !p.cfg.writesDeadLetters() {
		return d, nil
	}
	if err := until(ctx, "cannot read the dead letters; nothing is published before that", func() error {
		d.entries, d.begun, d.Since = d.entries[:0], make(map[gocql.UUID]struct{}), time.Time{}
		err := p.cfg.DeadLetters.ChainsAndBegun(ctx, p.cfg.tableName(), func(e dlq.ChainEntry) error {
			if e.Status.Open() && ownDeadLetter(p, own, e.EventID, e.AggregateID, e.WrittenAt) {
				d.entries = append(d.entries, e)
			}
			return nil
		}, func(e dlq.ChainEntry) {
			if own.HasText(e.AggregateID) {
				d.begun[e.EventID] = struct{}{}
			}
		})
		if err == nil {
			err = d.claims(ctx, p.cfg.DeadLetters)
		}
		return err
	}); err != nil {
		return nil, err
	}
	p.ask(d.note)
	return d, nil
}

// ownDeadLetter reports whether an open dead letter belongs to this shard. An event that
// another shard replays, but whose row this shard may read again, is added to the dedup
// index.
func ownDeadLetter(p *Publisher, own *cdclog.Portion, event gocql.UUID, aggregate string, written int64) bool {
	if own.HasText(aggregate) {
		return true
	}
	if chains.ByItself(event, aggregate) {
		p.ask(func(c *cell) { c.ids.addUnsent(event, written) })
	}
	return false
}

// LoadSettled adds to the dedup index the events of settled dead letters whose rows the
// CDC log, or a scan of the outbox table, may contain again: a discarded event is in no
// topic and must not be published.
//
// An event becomes a dead letter after its row is written. LoadSettled therefore reads
// only dead letters written after since, the time of the oldest row that may be read
// again; all if since is zero.
func LoadSettled(ctx context.Context, p *Publisher, own *cdclog.Portion, since time.Time, until untilRead) error {
	if !p.cfg.writesDeadLetters() {
		return nil
	}
	if !since.IsZero() {
		since = since.Add(-max(p.cfg.ReadBackMargin, minClockMargin)) // clocks differ
	}
	filter := dlq.Filter{Status: []dlq.Status{dlq.Resolved, dlq.Archived}, Since: since}
	return until(ctx, "cannot read the dead letters that were settled; nothing is published before that", func() error {
		most, n := max(p.cfg.Share.Events()/8, 1), 0
		return p.cfg.DeadLetters.List(ctx, filter, func(l *dlq.DeadLetter) error { // newest first
			if l.Table != p.cfg.tableName() || !own.HasText(l.AggregateID) {
				return nil
			}
			if published, _ := p.Indexed(l.EventID); published {
				return nil // the read-back found it
			}
			if n++; n > most {
				p.log.Warn("more dead letters were settled than the relay holds in memory; the oldest may be published when their rows are read again", "remembered", most)
				return dlq.ErrStop
			}
			p.ask(func(c *cell) { c.ids.addUnsent(l.EventID, l.WrittenAt) })
			return nil
		})
	})
}

// note sorts the entries and builds the chains.
//
// A dead letter may follow an event that is no open dead letter: either that one is
// settled, or a previous instance had its record with the producer when it ended. It was
// read before the later one became a dead letter, but its write time may be later: the
// row of the later one was late, or the clock of a writer is ahead. It concerns those behind
// the later one too, in case an operator discards that.
func (d *OpenDeadLetters) note(c *cell) {
	slices.SortStableFunc(d.entries, func(a, b dlq.ChainEntry) int {
		return cmp.Or(cmp.Compare(a.AggregateID, b.AggregateID), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.WrittenAt, b.WrittenAt),
			a.FirstFailedAt.Compare(b.FirstFailedAt)) // events of one batch have one write time
	})
	c.dead.begun = d.begun
	d.unknown = make(map[gocql.UUID]struct{})
	margin := max(c.cfg.ReadBackMargin, minClockMargin).Microseconds()
	var aggregate string // of the chain of the last strict dead letter
	var next, after int64
	for i := range d.entries {
		e := &d.entries[i]
		key := outbox.IDFromText(e.AggregateID)
		strict := !e.Unblocked && !c.cfg.relaxed(e.EventType)
		if !strict {
			key = outbox.IDFromUUID(e.EventID)
		}
		// Events behind a spilled dead letter were usually spilled too. The limit
		// includes them, or each restart in an outage would allow SpillLimit more.
		spill := chains.IsSpillClass(e.ErrorClass)
		if chain := c.dead.Of(key.UUID()); chain != nil && e.ErrorClass == chains.ClassBehind {
			spill = c.dead.IsSpill(chain.Head().ID)
		}
		ref := chains.Ref{
			ID: e.EventID, Seq: e.Sequence, At: chains.AtOfEntry(e, false), Group: c.dead.Group(e.Rule, e.FailureKey),
			Priority: int8(e.Priority), First: e.FirstFailedAt.UnixMilli(),
		}
		if strict {
			if aggregate != e.AggregateID || next != e.Sequence {
				if after = 0; e.ErrorClass == chains.ClassBehind && e.Sequence > 1 {
					after = max(e.WrittenAt, e.FirstFailedAt.UnixMicro()) + margin
					d.unknown[e.EventID] = struct{}{}
				}
			}
			ref.After, aggregate, next = after, e.AggregateID, e.Sequence+1
		}
		c.dead.Add(key, strict, ref, spill)
	}
	if n := len(d.entries); n > 0 {
		_, chains, _ := c.dead.Size()
		c.report(func(to *Publisher) { to.log.Info("dead letters wait", "dead_letters", n, "chains", chains) })
	}
}

// claims sets d.Since from the history of the claimed dead letters.
func (d *OpenDeadLetters) claims(ctx context.Context, store *dlq.Store) error {
	for i := range d.entries {
		e := &d.entries[i]
		if e.Status != dlq.Processing {
			continue
		}
		history, err := store.History(ctx, e.EventID)
		if err != nil {
			return err
		}
		began := e.FirstFailedAt
		for _, c := range history {
			if c.Action == dlq.ActionClaim {
				began = c.At
			}
		}
		if d.Since.IsZero() || began.Before(d.Since) {
			d.Since = began
		}
	}
	return nil
}

// Know updates the next sequence numbers of the aggregates from the dead letters. It is
// called after the read-back.
func (d *OpenDeadLetters) Know(p *Publisher) { p.ask(d.know) }

func (d *OpenDeadLetters) know(c *cell) {
	for i := range d.entries {
		e := &d.entries[i]
		// If the topics contain no event of the aggregate, the dead letter does not
		// determine the next number: later events may have passed it.
		if agg := rows.IDOf(e.AggregateID); e.Sequence > 0 {
			if known, ok := c.line(agg); ok {
				_, unknown := d.unknown[e.EventID]
				if chain := c.dead.Of(agg); unknown && chain != nil && known.Next == e.Sequence {
					chain.ClearAfter(e.EventID) // the previous event is in its topic
				}
				c.advance(agg, e.Sequence)
			}
		}
	}
}

// Settle resolves or returns the dead letters whose replays a previous instance had in
// progress. It is called after the read-back and before all replays. It retries until
// the database accepts each change; until then these dead letters block only their own
// aggregates. It returns the cause of ctx's end.
func (d *OpenDeadLetters) Settle(ctx context.Context, r *Replayer) error {
	r.reopened.of(d.entries, r.p.epochs.epochs.Restored())
	store := r.p.cfg.DeadLetters
	for ; len(d.entries) > 0; d.entries = d.entries[1:] {
		e := &d.entries[0]
		if e.Status != dlq.Processing {
			continue
		}
		out := r.isOut(e.EventID)
		if !out && e.ClaimedBy != r.owner {
			continue
		}
		what, change := "give back", func() error {
			return store.Unclaim(ctx, e.EventID, e.ClaimedBy, "the relay started again, and it is not in its topic")
		}
		if out {
			what, change = "resolve", func() error {
				return store.Resolve(ctx, e.EventID, e.ClaimedBy, dlq.Outcome{Kind: dlq.OutcomeFound, Note: "found in its topic at the relay's start"})
			}
		}
		switch stored := r.insist(ctx, e.EventID, what, change); {
		case !stored && ctx.Err() != nil:
			return context.Cause(ctx)
		case !stored: // its state has changed concurrently
		case out:
			r.metrics.Replays.WithLabelValues(strategyLabel(e.Strategy), "found").Inc()
			r.drop(e.EventID)
		default:
			r.later(e.EventID, chains.AtOnce)
		}
	}
	d.entries = nil
	return nil
}
