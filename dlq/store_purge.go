package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Purge says how a letter is purged.
type Purge struct {
	// Archive is where the whole letter is, already written and checked; empty
	// means nowhere: what is purged then is gone.
	Archive string
	// Force admits failed and manual letters, of which nobody has decided what
	// becomes. Their followers go on, as if they had been discarded.
	Force bool
}

// purged are the columns that a purged letter lacks.
var purgedColumns = []string{"payload", "content_type", "headers", "error_code", "error_text", "error_chain", "metadata", "raw"}

// Purge removes a letter but for its outline: ids, times, error class and
// outcome. The outline tells the relay that the event was dealt with, so that it
// is not published when its row comes again, and tells everybody where the
// letter is. It is archived, and on the list of archived letters alone.
//
// Resolved and archived letters can be purged; failed and manual ones if it is
// forced; others, which the relay works on, never. Of the history only this
// change is left. Purging again is no error. by.Version guards against a change
// since the letter was copied.
//
// What edits would have published is removed too, after the letter: if that
// fails, Purge says so, and purging again removes it.
func (s *Store) Purge(ctx context.Context, event gocql.UUID, how Purge, by Actor) error {
	if err := s.purge(ctx, event, how, by); err != nil {
		return err
	}
	return s.edits.remove(ctx, event)
}

func (s *Store) purge(ctx context.Context, event gocql.UUID, how Purge, by Actor) error {
	return s.operate(ctx, event, ActionPurge, by, func(l *DeadLetter) (planned, error) {
		if !l.PurgedAt.IsZero() {
			return planned{done: true}, nil
		}
		if err := how.check(l); err != nil {
			return planned{}, err
		}
		at := s.db.Millis()
		p := planned{
			to: Archived, past: map[int64]string{},
			set:    []assignment{{"purged_at", at}, {"archive", how.Archive}, {"next_attempt", nil}},
			change: func(l *DeadLetter) { l.PurgedAt, l.Archive, l.NextAttempt = at, how.Archive, time.Time{} },
		}
		for _, c := range purgedColumns {
			p.set = append(p.set, assignment{c, nil})
		}
		p.line.Outcome = "removed but for its outline; in no archive"
		if how.Archive != "" {
			p.line.Outcome = "moved to " + how.Archive
		}
		if l.Status.Open() {
			return s.skip(ctx, l, p, "is not published")
		}
		return p, nil
	})
}

func (how Purge) check(l *DeadLetter) error {
	if (l.Status == Failed || l.Status == Manual) && !how.Force {
		return refused(ActionPurge, l, "its event is in no topic: discard or resolve it first, or force it")
	}
	return nil
}

// CheckPurge returns nil if Purge could begin on the letter as it stands in l, and
// a *RefusedError if not.
func (s *Store) CheckPurge(l *DeadLetter, how Purge) error {
	if err := s.allowed(ActionPurge, l); err != nil {
		return err
	}
	if !l.PurgedAt.IsZero() {
		return refused(ActionPurge, l, "it was purged at "+l.PurgedAt.UTC().Format(time.RFC3339))
	}
	return how.check(l)
}

// CheckRestore returns nil if Restore could begin on the letter as it stands in l, and
// a *RefusedError if not.
func (s *Store) CheckRestore(l *DeadLetter) error {
	if !l.PurgedAt.IsZero() && l.Archive == "" {
		return refused(ActionRestore, l, "it was purged at "+l.PurgedAt.UTC().Format(time.RFC3339)+" and is in no archive")
	}
	return s.Check(ActionRestore, l)
}

// Copy is all there is to a letter: what an archive keeps of one, and Restore
// needs.
type Copy struct {
	DeadLetter DeadLetter
	// History are the changes of the letter, and Edits the edits that were decided,
	// oldest first.
	History []Change
	Edits   []Edited
}

// Copy reads all there is to a letter; ErrNotFound if there is none.
func (s *Store) Copy(ctx context.Context, event gocql.UUID) (Copy, error) {
	l, err := s.Read(ctx, event)
	if err != nil {
		return Copy{}, err
	}
	c := Copy{DeadLetter: l}
	if c.History, err = s.History(ctx, event); err == nil && l.Edit != nil {
		c.Edits, err = s.Edits(ctx, event)
	}
	if err != nil {
		return Copy{}, err
	}
	if l.Edit != nil && !slices.ContainsFunc(c.Edits, func(e Edited) bool { return e.ID == l.EditedID }) {
		c.Edits = append(c.Edits, *l.Edit) // the history is too long to know of it, and the letter names it
	}
	return c, nil
}

// Restore brings an archived letter back as it was: resolved, or, if it was never
// resolved, manual and released, because its aggregate has gone on. copied is
// what its archive has; nil for one that was archived and not purged.
func (s *Store) Restore(ctx context.Context, event gocql.UUID, copied *Copy, by Actor) error {
	if copied != nil && copied.DeadLetter.EventID != event {
		return fmt.Errorf("restore dead letter %s: the copy is of event %s", event, copied.DeadLetter.EventID)
	}
	return s.operate(ctx, event, ActionRestore, by, func(l *DeadLetter) (planned, error) {
		whole := l
		if !l.PurgedAt.IsZero() {
			if copied == nil {
				return planned{}, refused(ActionRestore, l, "it was purged: its copy from the archive is needed")
			}
			// A letter that names an edit has it, as when it was edited.
			for i := range copied.Edits {
				if err := s.edits.keep(ctx, event, &copied.Edits[i]); err != nil {
					return planned{}, err
				}
			}
			whole = &copied.DeadLetter
		}
		outcome, err := s.outcomeOf(ctx, event)
		if err != nil {
			return planned{}, err
		}
		p := planned{to: Resolved, set: []assignment{{"purged_at", nil}, {"archive", nil}}}
		if outcome == "" {
			p.to = Manual
			p.set = append(p.set, assignment{"released", true}, assignment{"strategy", StrategyManual}, assignment{"waiting", "restored from the archive"})
		}
		p.change = func(l *DeadLetter) {
			l.PurgedAt, l.Archive = time.Time{}, ""
			if outcome == "" {
				l.Released, l.Strategy, l.Waiting = true, StrategyManual, "restored from the archive"
			}
		}
		if !l.PurgedAt.IsZero() {
			p.set = append(p.set, []assignment{
				{"payload", blobOrNull(whole.Payload)},
				{"content_type", whole.ContentType},
				{"headers", mapOrNull(whole.Headers)},
				{"error_code", whole.ErrorCode},
				{"error_text", whole.ErrorText},
				{"error_chain", listOrNull(whole.ErrorChain)},
				{"metadata", mapOrNull(whole.Metadata)},
				{"raw", mapOrNull(whole.Raw)},
			}...)
			now, err := s.history(ctx, event, s.db.Consistency)
			if err != nil {
				return planned{}, err
			}
			history := copied.History
			p.past = make(map[int64]string, len(history)+len(now))
			for _, c := range append(history[min(max(0, len(history)-maxHistory+len(now)+1), len(history)):], now...) {
				p.past[c.Version] = c.text()
			}
			p.line.Outcome = "restored from " + l.Archive
		}
		return p, nil
	})
}

// outcomeOf is how a letter was resolved; empty if it was not.
func (s *Store) outcomeOf(ctx context.Context, event gocql.UUID) (OutcomeKind, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var kind string
	if err := s.db.Select(ctx, "SELECT outcome FROM "+s.stmt.table+" WHERE event_id = ?", event).Scan(&kind); err != nil {
		return "", fmt.Errorf("read the outcome of dead letter %s: %w", event, err)
	}
	return OutcomeKind(kind), nil
}

// Forget removes the outline of a purged letter, so that nothing is left of it.
// After that nobody knows that the event was dealt with: its row in the outbox
// must be gone for good. It is refused for a letter that was not purged.
func (s *Store) Forget(ctx context.Context, event gocql.UUID) error {
	var tried *DeadLetter
	for a := s.db.Retry(ctx); ; {
		err := s.forget(ctx, event, &tried)
		if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) || permanent(err) || !a.Pause() {
			return err
		}
	}
}

// forget is one try; tried becomes the letter of a transaction whose answer was lost.
func (s *Store) forget(ctx context.Context, event gocql.UUID, tried **DeadLetter) error {
	l, err := s.read(ctx, event, s.stmt.entry, (*DeadLetter).entryDest, s.db.Serial)
	if errors.Is(err, ErrNotFound) && *tried != nil { // it was decided
		s.clearForgotten(ctx, *tried)
		return nil
	}
	if err != nil {
		return err
	}
	if l.PurgedAt.IsZero() {
		return refused(ActionPurge, &l, "it is whole: purge it before it is forgotten")
	}
	applied, err := s.db.Apply(ctx, "DELETE FROM "+s.stmt.table+" WHERE event_id = ? IF version = ?", event, l.Version)
	if err != nil {
		*tried = &l
		return fmt.Errorf("forget dead letter %s: %w", event, err)
	}
	if !applied {
		return fmt.Errorf("forget dead letter %s: somebody changed it meanwhile", event)
	}
	s.clearForgotten(ctx, &l)
	return nil
}

// clearForgotten removes what is left beside the outline, which is gone.
func (s *Store) clearForgotten(ctx context.Context, l *DeadLetter) {
	if err := s.edits.remove(ctx, l.EventID); err != nil { // of a version that left them
		s.db.Log.Warn("the edits of a dead letter stay though it was forgotten", "event_id", l.EventID, "err", err)
	}
	if err := s.lists.drop(ctx, l, l.Version, listsOf(l), false); err != nil {
		s.db.Log.Debug("an entry without a letter stays for its readers", "event_id", l.EventID, "err", err)
	}
}

func blobOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func mapOrNull(m map[string]string) any {
	if m == nil {
		return nil
	}
	return m
}

func listOrNull(l []string) any {
	if l == nil {
		return nil
	}
	return l
}
