package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	done   bool            // the letter stands as wanted already
}

// change decides a change of a letter, by one lightweight transaction on the
// version that plan has seen, and returns the letter as it is after that,
// without what only publishing needs. plan may be called again, when somebody
// else was first; its error ends the change.
//
// Lists come before the transaction and are cleared after it, so that a letter
// is never missing from the lists of its status.
func (s *Store) change(ctx context.Context, event gocql.UUID, action Action, plan func(*Letter) (planned, error)) (Letter, error) {
	id := gocql.UUIDFromTime(s.now())
	cons := s.cons
	var tried int64 // the version that an attempt of unknown outcome would have made
	for a := s.again(ctx); ; {
		l, done, err := s.tryChange(ctx, event, id, action, cons, &tried, plan)
		switch {
		case done:
			return l, err
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound)) && cons != s.serial:
			// What was seen at a weaker level may be out of date.
		case err != nil && hopeless(err):
			return Letter{}, err
		case !a.pause():
			if err == nil {
				err = fmt.Errorf("%s dead letter %s: others changed it all the time", action, event)
			}
			return Letter{}, err
		}
		cons = s.serial
	}
}

// tryChange is one round of change; done ends it.
func (s *Store) tryChange(ctx context.Context, event, id gocql.UUID, action Action, cons gocql.Consistency, tried *int64,
	plan func(*Letter) (planned, error),
) (_ Letter, done bool, _ error) {
	old, err := s.read(ctx, event, s.stmt.entry, (*Letter).entryDest, cons)
	if err != nil {
		return Letter{}, errors.Is(err, ErrNotFound) && cons == s.serial, err
	}
	if *tried != 0 && old.Version >= *tried {
		// An attempt whose answer was lost may be the one that was decided.
		lines, err := s.history(ctx, event, s.serial)
		if err != nil {
			return Letter{}, false, err
		}
		if i := slices.IndexFunc(lines, func(c Change) bool { return c.ID == id }); i >= 0 {
			return old, true, nil
		}
		*tried = 0
	}
	p, err := plan(&old)
	if err != nil {
		return Letter{}, errors.Is(err, ErrRefused) && cons == s.serial, err
	}
	if p.done {
		return old, true, nil
	}
	if !slices.Contains(transitions[action][old.Status], p.to) {
		return Letter{}, true, fmt.Errorf("%s dead letter %s: no way from %s to %s", action, event, old.Status, p.to)
	}
	l := old
	l.Version++
	l.Status = p.to
	p.change(&l)
	if !p.silent {
		p.line.ID, p.line.At, p.line.Action, p.line.From, p.line.To = id, s.millis(), action, old.Status, p.to
		p.line.Version = l.Version
	}
	on, off := shelvesLess(&l, &old), shelvesLess(&old, &l)
	enters, leaves := l.Status.Open() && !old.Status.Open(), old.Status.Open() && !l.Status.Open()
	if err := s.add(ctx, &l, on, enters); err != nil {
		return Letter{}, false, err
	}
	applied, err := s.update(ctx, &old, &l, &p)
	switch {
	case err != nil:
		*tried = l.Version
		return Letter{}, false, err
	case !applied:
		return Letter{}, false, nil
	}
	if err := s.drop(ctx, &l, l.Version, off, leaves); err != nil {
		s.log.Debug("stale entries of a dead letter stay for their readers", "event_id", event, "err", err)
	}
	return l, true, nil
}

// update is the lightweight transaction.
func (s *Store) update(ctx context.Context, old, l *Letter, p *planned) (bool, error) {
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
	if !p.silent {
		b.WriteString(", history[?] = ?")
		args = append(args, l.Version, p.line.text())
		if l.Version > maxHistory {
			b.WriteString(", history[?] = ?")
			args = append(args, l.Version-maxHistory, nil)
		}
	}
	b.WriteString(" WHERE event_id = ? IF version = ?")
	args = append(args, l.EventID, old.Version)

	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	applied, err := s.query(ctx, b.String(), args...).SerialConsistency(s.serial).MapScanCAS(map[string]any{})
	if err != nil {
		return false, fmt.Errorf("change dead letter %s from %s to %s: %w", l.EventID, old.Status, l.Status, err)
	}
	return applied, nil
}

// nullable is t, or null for the zero time.
func nullable(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
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
