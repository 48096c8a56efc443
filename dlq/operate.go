package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Replay asks the relay to publish the letter: it is pending, due now. The
// relay keeps the order of the aggregate, so a parked letter is refused: it goes
// out by itself once the one before it is gone.
func (s *Store) Replay(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionReplay, by, func(l *Letter) (planned, error) {
		at := s.millis()
		return planned{
			to: Pending, set: append(unclaimed, assignment{"next_attempt", at}),
			change: func(l *Letter) { l.ClaimedBy, l.ClaimedUntil, l.NextAttempt = "", time.Time{}, at },
		}, nil
	})
}

// Discard ends the letter unpublished, for good, and lets its followers go on.
func (s *Store) Discard(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionDiscard, by, func(*Letter) (planned, error) {
		return s.resolved(Outcome{Kind: OutcomeDiscarded, Note: by.Reason}, Change{}), nil
	})
}

// ResolveByHand ends a letter that was settled elsewhere and lets its followers
// go on.
func (s *Store) ResolveByHand(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionResolve, by, func(*Letter) (planned, error) {
		return s.resolved(Outcome{Kind: OutcomeByHand, Note: by.Reason}, Change{}), nil
	})
}

// Release lets the later events of the aggregate pass the letter, which stays,
// manual, to be replayed out of order or discarded later.
func (s *Store) Release(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionRelease, by, func(l *Letter) (planned, error) {
		if l.Status == Manual && l.Released {
			return planned{done: true}, nil
		}
		p := s.putAside()
		p.set = append(p.set, assignment{"released", true})
		change := p.change
		p.change = func(l *Letter) { change(l); l.Released = true }
		return p, nil
	})
}

// Park puts the letter aside: it is manual, not tried and holding back its
// followers, until an operator says otherwise.
func (s *Store) Park(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionPark, by, func(l *Letter) (planned, error) {
		if l.Status == Manual {
			return planned{done: true}, nil
		}
		return s.putAside(), nil
	})
}

// Archive marks a letter that retention has moved out; only resolved and failed
// ones can be. The row stays.
func (s *Store) Archive(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionArchive, by, func(*Letter) (planned, error) {
		return planned{to: Archived, change: func(*Letter) {}}, nil
	})
}

func (s *Store) putAside() planned {
	return planned{
		to:  Manual,
		set: append(unclaimed, assignment{"next_attempt", nil}, assignment{"strategy", StrategyManual}),
		change: func(l *Letter) {
			l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Strategy = "", time.Time{}, time.Time{}, StrategyManual
		},
	}
}

// operate makes an operator's change, after telling the relay of it. Nobody
// takes a letter from the owner of a claim that has not run out.
func (s *Store) operate(ctx context.Context, event gocql.UUID, action Action, by Actor, plan func(*Letter) (planned, error)) error {
	if by.Name == "" {
		return fmt.Errorf("%s dead letter %s: the actor has no name", action, event)
	}
	var asked int64
	_, err := s.change(ctx, event, action, func(l *Letter) (planned, error) {
		if err := by.expects(l); err != nil {
			return planned{}, err
		}
		if err := s.allowed(action, l); err != nil {
			return planned{}, err
		}
		p, err := plan(l)
		if err != nil || p.done {
			return p, err
		}
		p.line.By, p.line.Why = by.Name, by.Reason
		if l.Status.Open() && asked != l.Version+1 {
			if err := s.ask(ctx, l, action, by.Name); err != nil {
				return planned{}, err
			}
			asked = l.Version + 1
		}
		return p, nil
	})
	return err
}

func (s *Store) allowed(action Action, l *Letter) error {
	if l.Status == Parked && (action == ActionReplay || action == ActionRelease) {
		return refused(action, l, "it goes out once the letters before it in its aggregate are gone: act on the first")
	}
	if err := may(action, l); err != nil {
		return err
	}
	if l.Status == Processing && s.now().Before(l.ClaimedUntil) {
		return refused(action, l, "try again when the claim has run out")
	}
	return nil
}
