package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// DefaultClaim is the default duration of a claim.
const DefaultClaim = 30 * time.Second

// Claim claims a dead letter for owner, for the duration lease, and returns all of it.
//
// Of concurrent claims of one dead letter exactly one succeeds. Claimable are pending
// and blocked dead letters, and processing ones whose claim has expired; a claim of the
// same owner is renewed. Otherwise the error is a *RefusedError or ErrNotFound. The
// clocks of owners must agree to well within the lease.
func (s *Store) Claim(ctx context.Context, event gocql.UUID, owner string, lease time.Duration) (DeadLetter, error) {
	if owner == "" || lease <= 0 {
		return DeadLetter{}, fmt.Errorf("claim dead letter %s: owner %q and lease %s: name an owner and a positive lease", event, owner, lease)
	}
	_, err := s.change(ctx, event, ActionClaim, func(l *DeadLetter) (planned, error) {
		if err := may(ActionClaim, l); err != nil {
			return planned{}, err
		}
		if l.Status == Processing && l.ClaimedBy != owner && s.db.Clock.Now().Before(l.ClaimedUntil) {
			return planned{}, newRefusedError(ActionClaim, l, "")
		}
		p := claimFor(owner, s.db.Millis().Add(lease))
		p.line = Change{By: owner}
		if l.Status == Processing && l.ClaimedBy != owner {
			p.line.Why = "the claim of " + l.ClaimedBy + " expired"
		}
		return p, nil
	})
	if err != nil {
		return DeadLetter{}, err
	}
	// Payload, headers and raw columns never change, so a second read is safe.
	var l DeadLetter
	for a := s.db.Retry(ctx); ; {
		if l, err = s.Read(ctx, event); err == nil || permanent(err) || !a.Pause() {
			break
		}
	}
	if err != nil {
		return DeadLetter{}, err
	}
	if l.Status != Processing || l.ClaimedBy != owner {
		return DeadLetter{}, newRefusedError(ActionClaim, &l, "the claim was lost immediately")
	}
	return l, nil
}

func claimFor(owner string, until time.Time) planned {
	return planned{
		to:     Processing,
		set:    []assignment{{"claimed_by", owner}, {"claimed_until", until}},
		change: func(l *DeadLetter) { l.ClaimedBy, l.ClaimedUntil = owner, until },
	}
}

// Extend extends owner's claim to lease from now. A *RefusedError reports that owner
// has lost the claim and must stop its work on the dead letter.
func (s *Store) Extend(ctx context.Context, event gocql.UUID, owner string, lease time.Duration) error {
	_, err := s.change(ctx, event, ActionExtend, func(l *DeadLetter) (planned, error) {
		if err := checkOwner(ActionExtend, l, owner); err != nil {
			return planned{}, err
		}
		p := claimFor(owner, s.db.Millis().Add(lease))
		p.silent = true
		return p, nil
	})
	return err
}

// Resolve resolves a dead letter that owner has claimed. Repeating it with the same
// kind of outcome is not an error.
//
// An expired claim is valid until another owner claims the dead letter, because the
// owner's work is done.
func (s *Store) Resolve(ctx context.Context, event gocql.UUID, owner string, how Outcome) error {
	return s.resolve(ctx, event, owner, how, func(*DeadLetter) bool { return false })
}

// resolve is Resolve, also for an open dead letter that nobody claims, if unclaimed
// permits it.
func (s *Store) resolve(ctx context.Context, event gocql.UUID, owner string, how Outcome, unclaimed func(*DeadLetter) bool) error {
	if err := how.validate(); err != nil {
		return fmt.Errorf("resolve dead letter %s: %w", event, err)
	}
	_, err := s.change(ctx, event, ActionSettle, func(l *DeadLetter) (planned, error) {
		err := checkOwner(ActionSettle, l, owner)
		if err != nil && l.Status.Open() && l.Status != Processing && unclaimed(l) {
			err = nil
		}
		if err != nil {
			return planned{}, err
		}
		if err := s.edits.fill(ctx, l); err != nil {
			return planned{}, err
		}
		how := how.of(l)
		return s.planResolve(how, Change{By: owner, Why: how.Note}), nil
	})
	return s.resolvedAlready(ctx, err, event, how)
}

// resolvedAlready returns nil for an error that reports that the dead letter is already
// resolved with this kind of outcome.
func (s *Store) resolvedAlready(ctx context.Context, err error, event gocql.UUID, how Outcome) error {
	var r *RefusedError
	if !errors.As(err, &r) || r.Status != Resolved {
		return err
	}
	if l, readErr := s.Read(ctx, event); readErr == nil && l.Outcome.Kind == how.of(&l).Kind {
		return nil
	}
	return err
}

func (s *Store) planResolve(how Outcome, line Change) planned {
	at := s.db.Millis()
	set := append(unclaimed, []assignment{
		{"next_attempt", nil},
		{"outcome", string(how.Kind)},
		{"outcome_note", how.Note},
		{"resolved_at", at},
	}...)
	if how.Topic != "" {
		set = append(set, assignment{"outcome_topic", how.Topic}, assignment{"outcome_partition", how.Partition},
			assignment{"outcome_offset", how.Offset})
	}
	line.Outcome = how.String()
	return planned{to: Resolved, set: set, line: line, change: func(l *DeadLetter) {
		l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Outcome, l.ResolvedAt = "", time.Time{}, time.Time{}, how, at
	}}
}

// Fail releases a claim after a failed replay and returns the new status: pending until
// the next attempt, failed after the last automatic replay, suspended if the failure is
// final.
func (s *Store) Fail(ctx context.Context, event gocql.UUID, owner string, f Failure) (Status, error) {
	l, err := s.change(ctx, event, ActionFail, func(l *DeadLetter) (planned, error) {
		if err := checkOwner(ActionFail, l, owner); err != nil {
			return planned{}, err
		}
		return s.planFail(l, owner, f), nil
	})
	return l.Status, err
}

func (s *Store) planFail(l *DeadLetter, owner string, f Failure) planned {
	at, replays := s.db.Millis(), l.Replays+1
	next, strategy, to := f.NextAttempt.UTC().Truncate(time.Millisecond), f.Strategy, Pending
	if strategy == "" {
		strategy = StrategyImmediate
	}
	if f.NextAttempt.IsZero() {
		next = at.Add(Delay(replays))
	}
	key, repeats := FailureKey(f.Class, f.Code, f.Text), 1
	if key == l.FailureKey {
		repeats = l.FailureRepeats + 1
	}
	reason := f.Class
	if f.Text != "" {
		reason += ": " + f.Text
	}
	outcome, waiting := "retried at "+next.Format(time.RFC3339), ""
	switch {
	case f.Final:
		to, strategy, next = Suspended, StrategyManual, time.Time{}
		waiting = cmp.Or(f.Waiting, "another attempt cannot help")
	case replays >= cmp.Or(f.MaxReplays, DefaultMaxReplays):
		to, strategy, next = Failed, StrategyManual, time.Time{}
		waiting = fmt.Sprintf("%d replays failed", replays)
		if repeats > 1 {
			waiting += ", the same error " + times(repeats) + ": " + reason
		}
	case f.SameError > 0 && repeats >= f.SameError:
		to, strategy, next = Suspended, StrategyManual, time.Time{}
		waiting = "the same error " + times(repeats) + ": " + reason
	}
	if waiting != "" {
		outcome = waiting
	}
	attempts := l.Attempts + f.Attempts
	set := append(unclaimed, []assignment{
		{"error_class", f.Class},
		{"error_code", f.Code},
		{"error_text", f.Text},
		{"error_chain", f.Chain},
		{"attempts", attempts},
		{"replays", replays},
		{"last_failed_at", at},
		{"strategy", strategy},
		{"next_attempt", db.NullTime(next)},
		{"rule", f.Rule},
		{"waiting", waiting},
		{"failure_key", key},
		{"failure_repeats", repeats},
	}...)
	if f.Metadata != nil {
		set = append(set, assignment{"metadata", f.Metadata})
	}
	return planned{to: to, set: set, line: Change{By: owner, Why: reason, Outcome: outcome, Class: f.Class}, change: func(l *DeadLetter) {
		l.ClaimedBy, l.ClaimedUntil = "", time.Time{}
		l.ErrorClass, l.Attempts, l.Replays, l.LastFailedAt, l.Strategy, l.NextAttempt = f.Class, attempts, replays, at, strategy, next
		l.Rule, l.Waiting, l.FailureKey, l.FailureRepeats = f.Rule, waiting, key, repeats
	}}
}

// Unclaim releases a claim without a replay, for example because the breaker opened:
// the dead letter is pending and due immediately, and no replay is counted. A blocked
// one is blocked again.
func (s *Store) Unclaim(ctx context.Context, event gocql.UUID, owner, why string) error {
	_, err := s.change(ctx, event, ActionUnclaim, func(l *DeadLetter) (planned, error) {
		if err := checkOwner(ActionUnclaim, l, owner); err != nil {
			return planned{}, err
		}
		if l.Strategy == StrategyFollow {
			return planned{
				to: Blocked, set: unclaimed, line: Change{By: owner, Why: why},
				change: func(l *DeadLetter) { l.ClaimedBy, l.ClaimedUntil = "", time.Time{} },
			}, nil
		}
		at := s.db.Millis()
		return planned{
			to: Pending, set: append(unclaimed, assignment{"next_attempt", at}), line: Change{By: owner, Why: why},
			change: func(l *DeadLetter) { l.ClaimedBy, l.ClaimedUntil, l.NextAttempt = "", time.Time{}, at },
		}, nil
	})
	return err
}

// unclaimed clears the claim; its capacity is its length, so that append copies it.
var unclaimed = []assignment{{"claimed_by", nil}, {"claimed_until", nil}}[:2:2]

// checkOwner returns a *RefusedError unless owner has claimed l.
func checkOwner(action Action, l *DeadLetter, owner string) error {
	if l.Status != Processing || l.ClaimedBy != owner {
		return newRefusedError(action, l, "it is not claimed by "+owner)
	}
	return nil
}

// MaxMany limits the number of dead letters of one ClaimMany or ResolveMany.
const MaxMany = maxLookup

// Claimed is one result of ClaimMany.
type Claimed struct {
	DeadLetter DeadLetter
	// Err is that of Claim.
	Err error
}

// ClaimMany is Claim for up to MaxMany dead letters with fewer round trips: they are
// read and listed together, and claimed by one transaction each. The results are in the
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
		if ok && owner != "" && lease > 0 && (l.Status == Pending || l.Status == Blocked) {
			p := claimFor(owner, until)
			p.line = Change{By: owner}
			many, at = append(many, &changing{move: move{old: l}, plan: p}), append(at, i)
			continue
		}
		out[i].DeadLetter, out[i].Err = s.Claim(ctx, event, owner, lease) // returns the reason
	}
	s.changeMany(ctx, ActionClaim, many)
	for n, c := range many {
		i := at[n]
		if c.done {
			out[i].DeadLetter = c.new
			continue
		}
		// Another process was first, or the response was lost. If the claim was
		// applied, this renews it.
		out[i].DeadLetter, out[i].Err = s.Claim(ctx, events[i], owner, lease)
	}
	return out
}

// Settlement is one item of ResolveMany: a dead letter as ClaimMany returned it, and
// its outcome.
type Settlement struct {
	DeadLetter DeadLetter
	How        Outcome
}

// ResolveMany is Resolve for up to MaxMany dead letters. The errors are in the order of
// settled. It also resolves a dead letter whose claim an operator ended, with a clock that is
// ahead, and that still has the same content: its event was with the broker, and is in its
// topic.
func (s *Store) ResolveMany(ctx context.Context, settled []Settlement, owner string) []error {
	out := make([]error, len(settled))
	many := make([]*changing, len(settled))
	var good []*changing
	for i, st := range settled {
		if err := st.How.validate(); err != nil {
			out[i] = fmt.Errorf("resolve dead letter %s: %w", st.DeadLetter.EventID, err)
			continue
		}
		if checkOwner(ActionSettle, &st.DeadLetter, owner) != nil {
			continue
		}
		how := st.How.of(&st.DeadLetter)
		settled[i].How = how
		many[i] = &changing{move: move{old: st.DeadLetter}, plan: s.planResolve(how, Change{By: owner, Why: how.Note})}
		good = append(good, many[i])
	}
	s.changeMany(ctx, ActionSettle, good)
	for i, st := range settled {
		if out[i] == nil && (many[i] == nil || !many[i].done) {
			// Determines the result.
			out[i] = s.resolve(ctx, st.DeadLetter.EventID, owner, st.How, func(l *DeadLetter) bool { return l.EditedID == st.DeadLetter.EditedID })
		}
	}
	return out
}

// changing is one of several changes that are made together.
type changing struct {
	move
	plan planned
	done bool
}

// changeMany is change for dead letters that were just read, without retries. The
// outcome of a change that is not done is unknown.
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
		line.Version, line.ID, line.At = c.new.Version, gocql.UUIDFromTime(s.db.Clock.Now()), s.db.Millis()
		line.Action, line.From, line.To = action, c.old.Status, c.plan.to
		on = append(on, c.entered())
	}
	if err := s.lists.add(ctx, on...); err != nil {
		return // the caller changes them one by one and returns the error
	}
	var wg sync.WaitGroup
	for _, c := range many {
		wg.Go(func() {
			applied, err := s.update(ctx, &c.move, &c.plan)
			c.done = applied && err == nil
		})
	}
	wg.Wait()
	for _, c := range many {
		if c.done {
			off = append(off, c.left())
		}
	}
	s.lists.drop(ctx, off...)
}
