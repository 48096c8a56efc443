package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// Purge contains the options of a purge.
type Purge struct {
	// Archive is the place of the copy, which is already written and verified; empty
	// means that there is no copy, and the content is lost.
	Archive string
	// Force admits failed and suspended dead letters, which no operator has resolved.
	// Their aggregates are unblocked as if they had been discarded.
	Force bool
}

// purgedColumns are the columns that a purge clears.
var purgedColumns = []string{"payload", "content_type", "headers", "error_code", "error_text", "error_chain", "metadata", "raw"}

// Purge removes the content of a dead letter except its outline: ids, times, error
// class and outcome. From the outline the relay knows that the event is settled and
// does not publish it when it reads its row again; the outline also contains the place
// of the copy. A purged dead letter is archived, and only in the list of archived ones.
//
// Resolved and archived dead letters can be purged, failed and suspended ones with Force;
// all others are refused. The history contains only the purge afterwards. Purging again
// is not an error. by.Version detects a change since the copy was made.
//
// Purge removes the contents of edits after the dead letter. If that fails, Purge
// returns the error, and purging again removes them.
func (s *Store) Purge(ctx context.Context, event gocql.UUID, how Purge, by Actor) error {
	if err := s.purge(ctx, event, how, by); err != nil {
		return err
	}
	return s.removeEdits(ctx, event)
}

// removeEdits removes the contents of the edits that are older than the purge: a restore
// since then has stored them again.
func (s *Store) removeEdits(ctx context.Context, event gocql.UUID) error {
	qctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var purged *int64
	if err := s.db.Select(qctx, s.stmt.purged, event).Consistency(s.db.Serial).Scan(&purged); err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return fmt.Errorf("read when dead letter %s was purged: %w", event, err)
	}
	if purged == nil { // it is restored, or forgotten with its edits
		return nil
	}
	return s.edits.remove(ctx, event, *purged)
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
		p.line.Outcome = "removed except for its outline; in no archive"
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
	if (l.Status == Failed || l.Status == Suspended) && !how.Force {
		return newRefusedError(ActionPurge, l, "its event is not in its topic: discard or resolve it first, or use force")
	}
	return nil
}

// CheckPurge returns nil if Purge is allowed for the dead letter l, and a *RefusedError
// if not.
func (s *Store) CheckPurge(l *DeadLetter, how Purge) error {
	if err := s.checkAllowed(ActionPurge, l, s.db.Clock.Now()); err != nil {
		return err
	}
	if !l.PurgedAt.IsZero() {
		return newRefusedError(ActionPurge, l, "it was purged at "+l.PurgedAt.UTC().Format(time.RFC3339))
	}
	return how.check(l)
}

// CheckRestore returns nil if Restore is allowed for the dead letter l, and a
// *RefusedError if not.
func (s *Store) CheckRestore(l *DeadLetter) error {
	if !l.PurgedAt.IsZero() && l.Archive == "" {
		return newRefusedError(ActionRestore, l, "it was purged at "+l.PurgedAt.UTC().Format(time.RFC3339)+" and is in no archive")
	}
	return s.Check(ActionRestore, l)
}

// Copy is a complete dead letter, as an archive stores it and Restore needs it.
type Copy struct {
	DeadLetter DeadLetter
	// History contains the changes of the dead letter, and Edits the applied edits,
	// oldest first.
	History []Change
	Edits   []Edited
}

// Copy reads a complete dead letter, or returns ErrNotFound.
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
		c.Edits = append(c.Edits, *l.Edit) // the history no longer contains it, and the dead letter does
	}
	return c, nil
}

// Restore restores an archived dead letter: as resolved, or, if it never was, as suspended
// and unblocked, because its aggregate has continued. copied is the copy of its archive;
// nil for one that was archived and not purged.
func (s *Store) Restore(ctx context.Context, event gocql.UUID, copied *Copy, by Actor) error {
	if copied != nil && copied.DeadLetter.EventID != event {
		return fmt.Errorf("restore dead letter %s: the copy is of event %s", event, copied.DeadLetter.EventID)
	}
	return s.operate(ctx, event, ActionRestore, by, func(l *DeadLetter) (planned, error) {
		whole := l
		if !l.PurgedAt.IsZero() {
			if copied == nil {
				return planned{}, newRefusedError(ActionRestore, l, "it was purged: its copy from the archive is needed")
			}
			// Store the edits first, so that every id in a dead letter has its edit.
			for i := range copied.Edits {
				if err := s.edits.keep(ctx, event, &copied.Edits[i]); err != nil {
					return planned{}, err
				}
			}
			whole = &copied.DeadLetter
		}
		outcome := l.Outcome.Kind
		p := planned{to: Resolved, set: []assignment{{"purged_at", nil}, {"archive", nil}}}
		if outcome == "" {
			p.to = Suspended
			p.set = append(p.set, assignment{"unblocked", true}, assignment{"strategy", StrategyManual}, assignment{"waiting", "restored from the archive"})
		}
		p.change = func(l *DeadLetter) {
			l.PurgedAt, l.Archive = time.Time{}, ""
			if outcome == "" {
				l.Unblocked, l.Strategy, l.Waiting = true, StrategyManual, "restored from the archive"
			}
		}
		if !l.PurgedAt.IsZero() {
			p.set = append(p.set, []assignment{
				{"payload", whole.Payload},
				{"content_type", whole.ContentType},
				{"headers", whole.Headers},
				{"error_code", whole.ErrorCode},
				{"error_text", whole.ErrorText},
				{"error_chain", whole.ErrorChain},
				{"metadata", whole.Metadata},
				{"raw", whole.Raw},
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

// Forget removes the outline of a purged dead letter. Afterwards nothing shows that the
// event was settled, so its row in the outbox must no longer exist. It is refused for a
// dead letter that is not purged.
func (s *Store) Forget(ctx context.Context, event gocql.UUID) error {
	var tried *DeadLetter
	for a := s.db.Retry(ctx); ; {
		err := s.forget(ctx, event, &tried)
		if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) || permanent(err) || !a.Pause() {
			return err
		}
	}
}

// forget makes one attempt; it sets tried to the dead letter of a transaction whose
// response was lost.
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
		return newRefusedError(ActionPurge, &l, "it is not purged: purge it first")
	}
	applied, err := s.db.Apply(ctx, "DELETE FROM "+s.stmt.table+" WHERE event_id = ? IF version = ?", event, l.Version)
	if err != nil {
		*tried = &l
		return fmt.Errorf("forget dead letter %s: %w", event, err)
	}
	if !applied {
		return fmt.Errorf("forget dead letter %s: it was changed concurrently", event)
	}
	s.clearForgotten(ctx, &l)
	return nil
}

// clearForgotten removes the edits and the list entry of a removed outline.
func (s *Store) clearForgotten(ctx context.Context, l *DeadLetter) {
	if err := s.edits.remove(ctx, l.EventID, time.Now().UnixMicro()); err != nil { // of a version that left them
		s.db.Log.Warn("failed to remove the edits of a forgotten dead letter", "event_id", l.EventID, "err", err)
	}
	s.lists.drop(ctx, listed{l, listKeys(l), false})
}
