package dlq

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// MaxMany is how many letters ClaimMany and ResolveMany take at once.
const MaxMany = maxLookup

// Claimed is what became of one of ClaimMany.
type Claimed struct {
	Letter Letter
	// Err is that of Claim.
	Err error
}

// ClaimMany is Claim for up to MaxMany letters, at the price of a few: they are
// read and listed together, and only decided one by one. The answers are in the
// order of events.
func (s *Store) ClaimMany(ctx context.Context, events []gocql.UUID, owner string, lease time.Duration) []Claimed {
	out := make([]Claimed, len(events))
	if len(events) > MaxMany {
		for i := range out {
			out[i].Err = fmt.Errorf("claim %d dead letters: more than %d", len(events), MaxMany)
		}
		return out
	}
	found, err := s.readWhole(ctx, events)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	until := s.db.Millis().Add(lease)
	var many []*changing
	var at []int
	for i, event := range events {
		l, ok := found[event]
		if ok && owner != "" && lease > 0 && (l.Status == Pending || l.Status == Parked) {
			p := claimFor(owner, until)
			p.line = Change{By: owner}
			many, at = append(many, &changing{old: l, plan: p}), append(at, i)
			continue
		}
		out[i].Letter, out[i].Err = s.Claim(ctx, event, owner, lease) // it says why not
	}
	s.changeMany(ctx, ActionClaim, many)
	for n, c := range many {
		i := at[n]
		if c.done {
			out[i].Letter = c.new
			continue
		}
		// Somebody was first, or the answer is lost. If it was decided, this renews it.
		out[i].Letter, out[i].Err = s.Claim(ctx, events[i], owner, lease)
	}
	return out
}

// Settlement is one of ResolveMany: a letter as ClaimMany returned it, and how it ended.
type Settlement struct {
	Letter Letter
	How    Outcome
}

// ResolveMany is Resolve for up to MaxMany letters. The errors are in the order
// of settled.
func (s *Store) ResolveMany(ctx context.Context, settled []Settlement, owner string) []error {
	out := make([]error, len(settled))
	many := make([]*changing, len(settled))
	var good []*changing
	for i, st := range settled {
		if err := st.How.validate(); err != nil {
			out[i] = fmt.Errorf("resolve dead letter %s: %w", st.Letter.EventID, err)
			continue
		}
		if owned(ActionSettle, &st.Letter, owner) != nil {
			continue
		}
		how := st.How.of(&st.Letter)
		many[i] = &changing{old: st.Letter, plan: s.resolved(how, Change{By: owner, Why: how.Note})}
		good = append(good, many[i])
	}
	s.changeMany(ctx, ActionSettle, good)
	for i, st := range settled {
		if out[i] == nil && (many[i] == nil || !many[i].done) {
			out[i] = s.Resolve(ctx, st.Letter.EventID, owner, st.How) // it finds out what there is
		}
	}
	return out
}

// changing is one of several changes that are made together.
type changing struct {
	old, new Letter
	plan     planned
	done     bool
}

// changeMany is change for letters that were just seen, without a second try:
// what is not done then may be decided or not.
func (s *Store) changeMany(ctx context.Context, action Action, many []*changing) {
	if len(many) == 0 {
		return
	}
	var on, off []listed
	for _, c := range many {
		c.new = c.old
		c.new.Version++
		c.new.Status = c.plan.to
		c.plan.change(&c.new)
		line := &c.plan.line
		line.Version, line.ID, line.At = c.new.Version, gocql.UUIDFromTime(s.db.Now()), s.db.Millis()
		line.Action, line.From, line.To = action, c.old.Status, c.plan.to
		on = append(on, listed{&c.new, shelvesLess(&c.new, &c.old), c.new.Status.Open() && !c.old.Status.Open()})
	}
	if err := s.lists.addMany(ctx, on); err != nil {
		return // the letters go on one by one, which says what is wrong
	}
	var wg sync.WaitGroup
	for _, c := range many {
		wg.Go(func() {
			applied, err := s.update(ctx, &move{old: c.old, new: c.new}, &c.plan)
			c.done = applied && err == nil
		})
	}
	wg.Wait()
	for _, c := range many {
		if c.done {
			off = append(off, listed{&c.new, shelvesLess(&c.old, &c.new), c.old.Status.Open() && !c.new.Status.Open()})
		}
	}
	if err := s.lists.dropMany(ctx, off); err != nil {
		s.db.Log.Debug("stale entries of dead letters stay for their readers", "letters", len(off), "err", err)
	}
}

// readWhole reads letters with their payloads, by event id; those that are not
// there are missing.
func (s *Store) readWhole(ctx context.Context, events []gocql.UUID) (map[gocql.UUID]Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	out := make(map[gocql.UUID]Letter, len(events))
	iter := s.db.Select(ctx, s.stmt.wholes, events).Prefetch(0).Iter()
	for {
		var l Letter
		if !iter.Scan(l.dest()...) {
			break
		}
		out[l.EventID] = l
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read %d dead letters: %w", len(events), err)
	}
	for id, l := range out {
		if err := s.readEdit(ctx, &l); err != nil {
			return nil, err
		}
		out[id] = l
	}
	return out, nil
}
