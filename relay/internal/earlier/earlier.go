// Package earlier finds the events of an aggregate that must be published before another one,
// where the relay does not know the aggregate: after a start, after its dedup entry was
// evicted, before a repair, and before the replay of a dead letter of an earlier process.
//
// It relies on the rows of an aggregate staying in its table until the last of them is published. An
// event whose row is gone is passed over as a number without a row is. It also relies on a row that
// is written again keeping its event's creation time: by a later one the row counts as a new write,
// and its event is published again after a start.
package earlier

import (
	"context"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Fate is the known state of a row.
type Fate uint8

const (
	// Published: the row's event is published or in progress.
	Published Fate = iota
	// DeadLetter: it is a dead letter, or one that was settled without being replayed in
	// order. That proves nothing for the rows before it: they may have been with the
	// producer when the dead letter was written, and lost with their relay.
	DeadLetter
	// Unpublished: no reader has offered the event.
	Unpublished
	// Rewritten: no reader has offered this write of the row. An earlier one may have
	// been published.
	Rewritten
	// Doubtful: an earlier run may have published the event.
	Doubtful
)

// Missed reports that no reader has offered the row: it may have to be published.
func (f Fate) Missed() bool { return f == Unpublished || f == Rewritten }

// Settled reports that no reader has to publish the row: its event is published, or a dead
// letter.
func (f Fate) Settled() bool { return f == Published || f == DeadLetter }

// Finder finds the rows of an aggregate that must be published before an event. The readers,
// the repairer and the replays of dead letters share the rule.
//
// The position of the sweep proves nothing: a row may become visible after the sweep has
// passed it.
//
//   - A row whose id is in the dedup index is published, or will be.
//   - A row whose event is or was a dead letter is settled by its replay or an operator. It
//     may have been written while an earlier event was with the producer, so it does not
//     decide for others.
//   - A row that was written after this run began to read its stream, and after every
//     evicted id, would be in the dedup index. It is not published, unless it was
//     published before and written again: then a record is near the time of its creation.
//   - Any other row is doubtful. Rows are published in the order of their numbers, so
//     the last doubtful row that is published decides for the earlier ones.
//
// The topics prove whether it is published (proofs).
type Finder struct {
	Evidence Evidence
	Lookup   cdclog.Lookup
	Quick    bool // leave a slow proof to the sweep reader
}

// Evidence shows whether events are published. *publish.Publisher implements it.
type Evidence interface {
	// Fate returns whether an event was accepted.
	Fate(f *cdclog.StoredEvent, began, remembered int64) Fate
	Prover
}

// Prover finds out whether an event that is not in the dedup index is published.
type Prover interface {
	// Prove returns Published, DeadLetter or Unpublished, and Doubtful if the topic must not be
	// read. With quick set it returns publish.ErrLeft instead of a slow proof.
	Prove(ctx context.Context, f *cdclog.StoredEvent, quick bool) (Fate, error)
	// Find is Prove by a read near the time of the event's creation alone, and returns
	// Doubtful if that does not find it.
	Find(ctx context.Context, f *cdclog.StoredEvent) (Fate, error)
}

// Rows are an aggregate's rows before an event.
type Rows struct {
	// Published is the number of the last published row, 0 without one. No later row
	// is published.
	Published int64
	// Missed is the number of the first row that is not published, 0 without one.
	Missed int64
	// Lowest and Highest are the numbers of the first and the last row, 0 without rows.
	Lowest, Highest int64
}

// Late reports whether a row must be published after a later one.
func (r *Rows) Late() bool { return r.Missed > 0 && r.Missed < r.Published }

// Find reads the rows of an aggregate below the number to. began is the time from which
// this run reads its stream, in microseconds; no id of a row written after remembered
// was evicted.
func (d *Finder) Find(ctx context.Context, of *outbox.Event, to, began, remembered int64) (out Rows, err error) {
	var doubts []doubt // after the last published row
	if err := d.Lookup(ctx, of, 1, to, func(f cdclog.StoredEvent) error {
		if out.Lowest == 0 {
			out.Lowest = f.Sequence
		}
		out.Highest = f.Sequence
		f.Payload = nil
		switch fate := d.Evidence.Fate(&f, began, remembered); fate {
		case Unpublished, Rewritten:
			if fate == Rewritten {
				doubts = append(doubts, doubt{f, true})
			}
			if out.Missed == 0 || f.Sequence < out.Missed {
				out.Missed = f.Sequence
			}
		case Published:
			out.Published, doubts = f.Sequence, nil
		case Doubtful:
			doubts = append(doubts, doubt{f, false})
		}
		return nil
	}); err != nil {
		return out, err
	}
	// As a rule the last one is published, or one of the last. Where none is, as in a topic that
	// was created again, the rest share a read.
	for _, n := range [...]int{1, 16, len(doubts)} {
		last := doubts[max(0, len(doubts)-n):]
		published, err := d.lastPublished(ctx, last)
		if err != nil || published > 0 {
			out.Published = max(out.Published, published)
			return out, err
		}
		doubts = doubts[:len(doubts)-len(last)]
	}
	return out, nil
}

// doubt is a row that may be published.
type doubt struct {
	row cdclog.StoredEvent
	// find means that a record near the time of the row's creation proves that it is, and its
	// absence the opposite.
	find bool
}

// lastPublished returns the number of the last row that is published, 0 if none is. The rows are
// proven concurrently: the prover reads for all of them together.
func (d *Finder) lastPublished(ctx context.Context, rows []doubt) (last int64, err error) {
	fates := make([]Fate, len(rows))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxProofs)
	for i := range rows {
		g.Go(func() (err error) {
			fates[i], err = d.resolve(ctx, &rows[i].row, rows[i].find)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for i, fate := range fates {
		if fate == Published {
			last = rows[i].row.Sequence
		}
	}
	return last, nil
}

// maxProofs is the maximum number of concurrent proofs of an aggregate.
const maxProofs = 1000

func (d *Finder) resolve(ctx context.Context, doubt *cdclog.StoredEvent, find bool) (Fate, error) {
	if find {
		return d.Evidence.Find(ctx, doubt)
	}
	fate, err := d.Evidence.Prove(ctx, doubt, d.Quick)
	if fate == Doubtful && err == nil {
		fate = Published // as a rule it is: the later ones must not wait for what nothing proves
	}
	return fate, err
}

// Unpublished calls take, in sequence, with each row of an aggregate below the number to that
// is proven not to be published and has no dead letter. The sweep reader has read the rows up
// to passed, in microseconds. The caller has claimed the aggregate.
func (d *Finder) Unpublished(ctx context.Context, of *outbox.Event, to, passed int64, take func(cdclog.StoredEvent) error) error {
	began := passed - 1
	found, err := d.Find(ctx, of, to, began, math.MaxInt64)
	if err != nil || found.Highest == found.Published {
		return err
	}
	return d.Lookup(ctx, of, found.Published+1, to, func(f cdclog.StoredEvent) error {
		if d.Evidence.Fate(&f, began, math.MaxInt64).Settled() {
			return nil
		}
		return take(f)
	})
}
