package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"
)

// assignment is one column of an UPDATE.
type assignment struct {
	column string
	value  any
}

// planned describes a change of a dead letter.
type planned struct {
	to     Status
	set    []assignment
	change func(l *DeadLetter) // applies the change in memory
	line   Change              // actor, reason and outcome
	silent bool                // no line in the history
	// noRequest reports that the relay need not read the change.
	noRequest bool
	// past, unless nil, becomes the history before the line.
	past map[int64]string
	done bool // nothing to change
}

// changer is one change.
type changer struct {
	s      *Store
	event  gocql.UUID
	id     gocql.UUID // of the history's line
	action Action
	plan   func(*DeadLetter) (planned, error)
	cons   gocql.Consistency
	// open are transactions whose response was lost; one of them may be applied, now or
	// later.
	open []move
}

// move is a dead letter before and after a change.
type move struct{ old, new DeadLetter }

// entered are the lists to which the change adds the dead letter, left the lists that no longer contain it.
func (m *move) entered() listed {
	return listed{&m.new, listsWithout(&m.new, &m.old), m.new.Status.Open() && !m.old.Status.Open()}
}

func (m *move) left() listed {
	return listed{&m.new, listsWithout(&m.old, &m.new), m.old.Status.Open() && !m.new.Status.Open()}
}

// try is one round; done ends the change.
func (c *changer) try(ctx context.Context) (_ DeadLetter, done bool, _ error) {
	s := c.s
	old, err := s.read(ctx, c.event, s.stmt.entry, (*DeadLetter).entryDest, c.cons)
	if err != nil {
		return DeadLetter{}, errors.Is(err, ErrNotFound) && c.cons == s.db.Serial, err
	}
	if m, err := c.findEarlierAttempt(ctx, &old); err != nil {
		return DeadLetter{}, false, err
	} else if m != nil {
		s.lists.drop(ctx, m.left())
		return old, true, nil
	}
	p, err := c.plan(&old)
	if err != nil {
		return DeadLetter{}, errors.Is(err, ErrRefused) && c.cons == s.db.Serial, err
	}
	if p.done { // another change may be decided and invisible
		return old, c.cons == s.db.Serial, nil
	}
	if !slices.Contains(transitions[c.action][old.Status], p.to) {
		return DeadLetter{}, true, fmt.Errorf("%s dead letter %s: no transition from %s to %s", c.action, c.event, old.Status, p.to)
	}
	m := move{old: old, new: old}
	l := &m.new
	l.Version++
	l.Status = p.to
	p.change(l)
	p.line.Version, p.line.ID, p.line.At = l.Version, c.id, s.db.Millis()
	p.line.Action, p.line.From, p.line.To = c.action, old.Status, p.to
	if err := s.lists.add(ctx, m.entered()); err != nil {
		return DeadLetter{}, false, err
	}
	applied, err := s.update(ctx, &m, &p)
	switch {
	case err != nil:
		if !p.silent {
			c.open = append(c.open, m)
		}
		return DeadLetter{}, false, err
	case !applied:
		return DeadLetter{}, false, nil
	}
	s.lists.drop(ctx, m.left())
	return *l, true, nil
}

// findEarlierAttempt returns the earlier attempt that made the change, or nil.
func (c *changer) findEarlierAttempt(ctx context.Context, now *DeadLetter) (*move, error) {
	if len(c.open) == 0 || now.Version < c.open[0].new.Version {
		return nil, nil
	}
	lines, err := c.s.history(ctx, c.event, c.s.db.Serial)
	if err != nil {
		return nil, err
	}
	for i := range c.open {
		if slices.ContainsFunc(lines, func(l Change) bool { return l.ID == c.id && l.Version == c.open[i].new.Version }) {
			return &c.open[i], nil
		}
	}
	return nil, nil
}
