package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gocql/gocql"
)

// assignment is one column of an UPDATE.
type assignment struct {
	column string
	value  any
}

// planned is what a change does to a letter.
type planned struct {
	to     Status
	set    []assignment
	change func(l *Letter) // the same to the letter in memory
	line   Change          // who, why and what came of it
	silent bool            // no line in the history
	// past, unless nil, becomes the history before the line.
	past map[int64]string
	done bool // the letter stands as wanted already
}

// change decides a change of a letter, by one lightweight transaction on the
// version that plan has seen, and returns the letter as it is after that,
// without what only publishing needs. plan may be called again, when somebody
// else was first; its *RefusedError ends the change.
//
// Lists come before the transaction and are cleared after it, so that a letter
// is never missing from the lists of its status.
func (s *Store) change(ctx context.Context, event gocql.UUID, action Action, plan func(*Letter) (planned, error)) (Letter, error) {
	c := changer{s: s, event: event, id: gocql.UUIDFromTime(s.db.Now()), action: action, plan: plan, cons: s.db.Consistency}
	for a := s.db.Retry(ctx); ; {
		l, done, err := c.try(ctx)
		switch {
		case done:
			return l, err
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound)) && c.cons != s.db.Serial:
			// What was seen at a weaker level may be out of date.
		case err != nil && hopeless(err):
			return Letter{}, err
		case !a.Pause():
			if err == nil {
				err = fmt.Errorf("%s dead letter %s: others changed it all the time", action, event)
			}
			return Letter{}, err
		}
		c.cons = s.db.Serial
	}
}

// changer is one change.
type changer struct {
	s      *Store
	event  gocql.UUID
	id     gocql.UUID // of the history's line
	action Action
	plan   func(*Letter) (planned, error)
	cons   gocql.Consistency
	// open are transactions whose answer was lost; one of them may have been
	// decided, or yet be.
	open []move
}

// move is a letter before and after a change.
type move struct{ old, new Letter }

// try is one round; done ends the change.
func (c *changer) try(ctx context.Context) (_ Letter, done bool, _ error) {
	s := c.s
	old, err := s.read(ctx, c.event, s.stmt.entry, (*Letter).entryDest, c.cons)
	if err != nil {
		return Letter{}, errors.Is(err, ErrNotFound) && c.cons == s.db.Serial, err
	}
	if m, err := c.settled(ctx, &old); err != nil {
		return Letter{}, false, err
	} else if m != nil {
		s.leave(ctx, m)
		return old, true, nil
	}
	p, err := c.plan(&old)
	if err != nil {
		return Letter{}, errors.Is(err, ErrRefused) && c.cons == s.db.Serial, err
	}
	if p.done {
		return old, true, nil
	}
	if !slices.Contains(transitions[c.action][old.Status], p.to) {
		return Letter{}, true, fmt.Errorf("%s dead letter %s: no way from %s to %s", c.action, c.event, old.Status, p.to)
	}
	m := move{old: old, new: old}
	l := &m.new
	l.Version++
	l.Status = p.to
	p.change(l)
	p.line.Version, p.line.ID, p.line.At = l.Version, c.id, s.db.Millis()
	p.line.Action, p.line.From, p.line.To = c.action, old.Status, p.to
	if err := s.lists.add(ctx, l, shelvesLess(l, &old), l.Status.Open() && !old.Status.Open()); err != nil {
		return Letter{}, false, err
	}
	applied, err := s.update(ctx, &m, &p)
	switch {
	case err != nil:
		if !p.silent {
			c.open = append(c.open, m)
		}
		return Letter{}, false, err
	case !applied:
		return Letter{}, false, nil
	}
	s.leave(ctx, &m)
	return *l, true, nil
}

// settled returns the earlier try that made the change, if one did.
func (c *changer) settled(ctx context.Context, now *Letter) (*move, error) {
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

// leave takes a letter off the lists on which it no longer stands.
func (s *Store) leave(ctx context.Context, m *move) {
	left := m.old.Status.Open() && !m.new.Status.Open()
	if err := s.lists.drop(ctx, &m.new, m.new.Version, shelvesLess(&m.old, &m.new), left); err != nil {
		s.db.Log.Debug("stale entries of a dead letter stay for their readers", "event_id", m.new.EventID, "err", err)
	}
}

// update is the lightweight transaction.
func (s *Store) update(ctx context.Context, m *move, p *planned) (bool, error) {
	old, l := &m.old, &m.new
	set := append([]assignment{{"version", l.Version}, {"status", string(l.Status)}}, p.set...)
	var b strings.Builder
	b.WriteString("UPDATE " + s.stmt.letters + " SET ")
	args := make([]any, 0, len(set)+6)
	for i, a := range set {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.column + " = ?")
		args = append(args, a.value)
	}
	switch {
	case p.silent:
	case p.past != nil:
		past := maps.Clone(p.past)
		past[l.Version] = p.line.text()
		b.WriteString(", history = ?")
		args = append(args, past)
	default:
		b.WriteString(", history[?] = ?")
		args = append(args, l.Version, p.line.text())
		if l.Version > maxHistory {
			b.WriteString(", history[?] = ?")
			args = append(args, l.Version-maxHistory, nil)
		}
	}
	b.WriteString(" WHERE event_id = ? IF version = ?")
	args = append(args, l.EventID, old.Version)

	if err := s.db.CheckFence(); err != nil {
		return false, err
	}
	applied, err := s.db.Apply(ctx, b.String(), args...)
	if err != nil {
		return false, fmt.Errorf("change dead letter %s from %s to %s: %w", l.EventID, old.Status, l.Status, err)
	}
	return applied, nil
}

// refused is the error of an action that may not begin where l stands.
func refused(action Action, l *Letter, hint string) error {
	return &RefusedError{
		EventID: l.EventID, Action: action, Status: l.Status, ClaimedBy: l.ClaimedBy, ClaimedUntil: l.ClaimedUntil, Hint: hint,
	}
}

// may returns a *RefusedError unless action can begin where l stands.
func may(action Action, l *Letter) error {
	if _, ok := transitions[action][l.Status]; !ok {
		return refused(action, l, "")
	}
	return nil
}
