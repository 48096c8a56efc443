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

// Replay requests that the relay publishes the dead letter: it becomes pending, due
// now. The relay keeps the order of the aggregate, so a blocked dead letter is refused:
// the relay publishes it after the one before it.
func (s *Store) Replay(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionReplay, by, func(*DeadLetter) (planned, error) { return s.dueNow(), nil })
}

// dueNow makes a dead letter pending, due immediately.
func (s *Store) dueNow() planned {
	at := s.db.Millis()
	return planned{
		to: Pending, set: append(unclaimed, assignment{"next_attempt", at}, assignment{"waiting", nil}),
		change: func(l *DeadLetter) { l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Waiting = "", time.Time{}, at, "" },
	}
}

// Discard resolves the dead letter without publishing it, and unblocks the aggregate.
func (s *Store) Discard(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionDiscard, by, func(l *DeadLetter) (planned, error) {
		return s.skip(ctx, l, s.planResolve(Outcome{Kind: OutcomeDiscarded, Note: by.Reason}, Change{}), "is never published")
	})
}

// ResolveByHand resolves a dead letter that was handled elsewhere, and unblocks the
// aggregate.
func (s *Store) ResolveByHand(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionResolve, by, func(l *DeadLetter) (planned, error) {
		return s.skip(ctx, l, s.planResolve(Outcome{Kind: OutcomeByHand, Note: by.Reason}, Change{}), "is not published by the relay")
	})
}

// Reopen takes back Discard or ResolveByHand: the dead letter becomes suspended and unblocked,
// because its aggregate has continued, and a replay publishes it out of order. One whose event is
// in its topic is refused.
func (s *Store) Reopen(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionReopen, by, func(*DeadLetter) (planned, error) {
		p := s.planSuspend("reopened by " + by.Name + formatReason(by))
		p.set = append(p.set, assignment{"unblocked", true}, assignment{"outcome", nil}, assignment{"outcome_note", nil}, assignment{"resolved_at", nil})
		change := p.change
		p.change = func(l *DeadLetter) {
			change(l)
			l.Unblocked, l.Outcome, l.ResolvedAt = true, Outcome{}, time.Time{}
		}
		return p, nil
	})
}

// Reopens reports whether the dead letter was resolved without publishing its event.
func (l *DeadLetter) Reopens() bool {
	return l.Outcome.Kind == OutcomeDiscarded || l.Outcome.Kind == OutcomeByHand
}

// Unblock unblocks the aggregate without resolving the dead letter: it becomes suspended
// and can be replayed out of order or discarded later.
func (s *Store) Unblock(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionUnblock, by, func(l *DeadLetter) (planned, error) {
		if l.Status == Suspended && l.Unblocked {
			return planned{done: true}, nil
		}
		p := s.planSuspend("unblocked by " + by.Name + formatReason(by))
		p.set = append(p.set, assignment{"unblocked", true})
		change := p.change
		p.change = func(l *DeadLetter) { change(l); l.Unblocked = true }
		return s.skip(ctx, l, p, "is passed by later events")
	})
}

// Suspend suspends the dead letter: it becomes suspended, is not retried and blocks its
// aggregate until an operator changes it.
func (s *Store) Suspend(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionSuspend, by, func(l *DeadLetter) (planned, error) {
		if l.Status == Suspended {
			return planned{done: true}, nil
		}
		return s.planSuspend("suspended by " + by.Name + formatReason(by)), nil
	})
}

// skip adds to the history which event an operator skips, and how many dead letters
// that unblocks.
func (s *Store) skip(ctx context.Context, l *DeadLetter, p planned, what string) (planned, error) {
	n, more, err := s.followers(ctx, l)
	if err != nil {
		return planned{}, err
	}
	if _, ok := ParseSubscription(l.Table); ok {
		what = strings.Replace(strings.TrimSuffix(what, " by the relay"), "published", "delivered", 1)
	}
	skipped := fmt.Sprintf("skipped: %s seq %d of %s %s", l.EventType, l.Sequence, l.AggregateID, what)
	switch {
	case l.Unblocked:
		skipped += "; it blocked nothing"
	case more:
		skipped += fmt.Sprintf("; more than %d dead letters behind it are unblocked", n)
	case n > 0:
		skipped += fmt.Sprintf("; dead letters behind it that are unblocked: %d", n)
	default:
		skipped += "; no dead letter is behind it"
	}
	if p.line.Outcome != "" {
		skipped = p.line.Outcome + "; " + skipped
	}
	p.line.Outcome = skipped
	return p, nil
}

// maxFollowers limits the count of blocked dead letters.
const maxFollowers = 1000

// followers counts the open dead letters of the aggregate after l; more reports that
// there are more than n.
func (s *Store) followers(ctx context.Context, l *DeadLetter) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	iter := s.db.Select(ctx, s.stmt.chain, l.Table, chainBucket(l.AggregateID), l.AggregateID).PageSize(maxFollowers).Prefetch(0).Iter()
	var k chainKey
	for n <= maxFollowers && iter.Scan(&k.aggregate, &k.seq, &k.writtenAt, &k.event) {
		if k.seq > l.Sequence || k.seq == l.Sequence && k.writtenAt > l.WrittenAt {
			n++
		}
	}
	if err := iter.Close(); err != nil {
		return 0, false, fmt.Errorf("read the chain behind dead letter %s: %w", l.EventID, err)
	}
	return min(n, maxFollowers), n > maxFollowers, nil
}

// Archive archives a resolved or failed dead letter after its retention. The row
// remains.
func (s *Store) Archive(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionArchive, by, func(*DeadLetter) (planned, error) {
		return planned{to: Archived, change: func(*DeadLetter) {}}, nil
	})
}

// formatReason returns ": " and the operator's reason, or nothing.
func formatReason(by Actor) string {
	if by.Reason == "" {
		return ""
	}
	return ": " + by.Reason
}

func (s *Store) planSuspend(waiting string) planned {
	return planned{
		to:  Suspended,
		set: append(unclaimed, assignment{"next_attempt", nil}, assignment{"strategy", StrategyManual}, assignment{"waiting", waiting}),
		change: func(l *DeadLetter) {
			l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Strategy, l.Waiting = "", time.Time{}, time.Time{}, StrategyManual, waiting
		},
	}
}

// Edit replaces the content that is published for a dead letter, under a new id, and
// returns that id. The relay publishes it immediately; a blocked one remains blocked.
// expect, unless 0, is the version that the operator has seen; if the dead letter has
// another version, the error is a *VersionError.
//
// The dead letter keeps its id, its position in its aggregate's order and the original
// event, byte for byte. One transaction on the dead letter decides which content is
// published, so a crash cannot lose the position or publish both. An edit may be edited
// again until it is published. Edits lists all of them.
//
// After an error other than *VersionError, *RefusedError or ErrInvalidEdit the outcome
// is unknown; Read returns the current state.
func (s *Store) Edit(ctx context.Context, event gocql.UUID, e Edit, by Actor, expect int64) (gocql.UUID, error) {
	by.Version = expect
	deadLetter, err := s.Read(ctx, event)
	if err != nil {
		return gocql.UUID{}, fmt.Errorf("edit: %w", err)
	}
	if err := e.Fits(&deadLetter); err != nil {
		return gocql.UUID{}, err
	}
	return s.edit(ctx, ActionEdit, &deadLetter, e, by)
}

// Redirect publishes the dead letter to a topic other than its own, by an edit of nothing else:
// under a new id, at its place in the order of its aggregate. The content is not validated: that
// topic may take what outbox.Event.Validate refuses, such as a larger record. It does nothing if the
// dead letter is redirected to the topic already. A dead letter of a subscription, which has no
// topic, is refused, and one whose row could not be read.
func (s *Store) Redirect(ctx context.Context, event gocql.UUID, topic string, by Actor) error {
	if !ValidTopic(topic) {
		return fmt.Errorf("redirect dead letter %s: %w: topic %q: use 1 to 249 letters, digits, dots, dashes or underscores", event, ErrInvalidEdit, topic)
	}
	l, err := s.Read(ctx, event)
	if err != nil {
		return fmt.Errorf("redirect: %w", err)
	}
	if did, err := s.didFor(ctx, &l, by.Job); err != nil || did {
		return err
	}
	e := l.Content()
	if err := s.Check(ActionRedirect, &l); err != nil || e.Topic == topic {
		return err
	}
	e.Topic = topic
	_, err = s.edit(ctx, ActionRedirect, &l, e, by)
	return err
}

// edit makes e the content of a dead letter that was just read, and returns the id of the edit.
func (s *Store) edit(ctx context.Context, action Action, deadLetter *DeadLetter, e Edit, by Actor) (gocql.UUID, error) {
	event := deadLetter.EventID
	if by.Name == "" {
		return gocql.UUID{}, fmt.Errorf("%s dead letter %s: the actor has no name", action, event)
	}
	edited := Edited{ID: gocql.MustRandomUUID(), Edit: e, Actor: by, At: s.db.Millis()}
	var err error
	// The edit is stored first, so that every id in a dead letter has its edit.
	for a := s.db.Retry(ctx); ; {
		if err = s.edits.keep(ctx, event, &edited); err == nil {
			break
		}
		if permanent(err) || !a.Pause() {
			return gocql.UUID{}, err
		}
	}
	err = s.operate(ctx, event, action, by, func(l *DeadLetter) (planned, error) {
		if l.EditedID != deadLetter.EditedID { // not the content that e was made from
			return planned{}, &VersionError{EventID: event, Have: l.Version, Want: deadLetter.Version}
		}
		if l.Status == Blocked {
			return planned{
				to: Blocked, set: []assignment{{"edited_id", edited.ID}}, line: Change{Outcome: edited.line()},
				change: func(l *DeadLetter) { l.EditedID = edited.ID },
			}, nil
		}
		p := s.dueNow()
		p.set = append(p.set, assignment{"edited_id", edited.ID})
		p.line.Outcome = edited.line()
		due := p.change
		p.change = func(l *DeadLetter) { due(l); l.EditedID = edited.ID }
		return p, nil
	})
	if err != nil {
		// A purge that was faster has removed the edits before this one was stored.
		if l, readErr := s.Read(ctx, event); readErr == nil && !l.PurgedAt.IsZero() {
			err = errors.Join(err, s.edits.drop(ctx, event, edited.ID))
		}
		return gocql.UUID{}, err
	}
	return edited.ID, nil
}

// operate makes an operator's change, after writing a request for the relay. It refuses
// a dead letter whose claim has not expired by the clock of this host and of the database.
func (s *Store) operate(ctx context.Context, event gocql.UUID, action Action, by Actor, plan func(*DeadLetter) (planned, error)) error {
	if by.Name == "" {
		return fmt.Errorf("%s dead letter %s: the actor has no name", action, event)
	}
	var asked int64
	var askedAt time.Time
	changed, err := s.change(ctx, event, action, func(l *DeadLetter) (planned, error) {
		if err := by.checkVersion(l); err != nil {
			return planned{}, err
		}
		did, err := s.didFor(ctx, l, by.Job)
		if err != nil || did {
			return planned{done: did}, err
		}
		now := s.db.Clock.Now()
		if l.Status == Processing && !now.Before(l.ClaimedUntil) {
			// The clock of an operator's host may be ahead by minutes, while the relay still
			// has the event with the producer.
			if now, err = s.db.ServerTime(ctx); err != nil {
				return planned{}, err
			}
		}
		if err := s.checkAllowed(action, l, now); err != nil {
			return planned{}, err
		}
		p, err := plan(l)
		if err != nil || p.done {
			return p, err
		}
		p.line.By, p.line.Why = by.Name, by.Reason
		if by.Job != (gocql.UUID{}) {
			p.line.Job = by.Job
			p.set = append(p.set, assignment{"job_id", by.Job})
			change := p.change
			p.change = func(l *DeadLetter) { change(l); l.job = by.Job }
		}
		if !p.noRequest && (l.Status.Open() || p.to.Open()) && asked != l.Version+1 {
			askedAt = s.db.Millis() // without a monotonic time, which stops while the host sleeps
			if err := s.request(ctx, l, action, by.Name); err != nil {
				return planned{}, err
			}
			asked = l.Version + 1
		}
		return p, nil
	})
	if err != nil || asked == 0 || s.db.Millis().Sub(askedAt) < requestAgain {
		return err
	}
	// This process slept, and the relay may have removed the request before the change.
	changed.Version = asked - 1
	for a := s.db.Retry(ctx); ; {
		if err = s.request(ctx, &changed, action, by.Name); err == nil || permanent(err) || !a.Pause() {
			return err
		}
	}
}

func (s *Store) checkAllowed(action Action, l *DeadLetter, now time.Time) error {
	if l.Status == Blocked && (action == ActionReplay || action == ActionUnblock) {
		return newRefusedError(action, l, "it is published after the dead letters before it in its aggregate: act on the first one")
	}
	if err := may(action, l); err != nil {
		return err
	}
	if _, ok := ParseSubscription(l.Table); ok && action == ActionRedirect {
		return newRefusedError(action, l, "it is delivered to its subscription, and to no topic: replay or edit it")
	}
	if action == ActionRedirect && l.incomplete() {
		return newRefusedError(action, l, "its row could not be read: fix the row in "+l.Table+" and replay it")
	}
	if action == ActionRedirect && l.Unread() {
		return newRefusedError(action, l, "its row could not be read: fix the row in "+l.Table+" and replay it, or edit it before")
	}
	if action == ActionReopen && !l.Reopens() {
		return newRefusedError(action, l, "its event is in its topic: only a discarded one, or one that was resolved by hand, can be reopened")
	}
	if l.Status == Processing && now.Before(l.ClaimedUntil) {
		return newRefusedError(action, l, "retry when the claim has expired")
	}
	return nil
}

// Check returns nil if an operator's action is allowed for the dead letter l, and a
// *RefusedError if not.
func (s *Store) Check(action Action, l *DeadLetter) error {
	return s.checkAllowed(action, l, s.db.Clock.Now())
}

// Set changes the priority and the tags of a dead letter that is not archived. Its
// status and its place in the order of its aggregate do not change. The relay reads a priority. A change that changes nothing is not an error and has no line in the
// history.
func (s *Store) Set(ctx context.Context, event gocql.UUID, c Labels, by Actor) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("set dead letter %s: %w", event, err)
	}
	return s.operate(ctx, event, ActionSet, by, func(l *DeadLetter) (planned, error) {
		priority, tags := c.of(l)
		if len(tags) > MaxTags {
			return planned{}, newRefusedError(ActionSet, l, fmt.Sprintf("it would have %d tags, at most %d are allowed: remove some", len(tags), MaxTags))
		}
		if priority == l.Priority && slices.Equal(tags, l.Tags) {
			return planned{done: true}, nil
		}
		_, ofSubscription := ParseSubscription(l.Table)
		return planned{
			noRequest: priority == l.Priority || ofSubscription,
			to:        l.Status, set: []assignment{{"priority", priority}, {"tags", tags}},
			change: func(l *DeadLetter) { l.Priority, l.Tags = priority, tags },
			line:   Change{Outcome: labelsChanged(l, priority, tags)},
		}, nil
	})
}
