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
	return s.operate(ctx, event, ActionReplay, by, func(*DeadLetter) (planned, error) { return s.dueNow(), nil })
}

// dueNow makes a letter pending, to be published at once.
func (s *Store) dueNow() planned {
	at := s.db.Millis()
	return planned{
		to: Pending, set: append(unclaimed, assignment{"next_attempt", at}, assignment{"waiting", nil}),
		change: func(l *DeadLetter) { l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Waiting = "", time.Time{}, at, "" },
	}
}

// Discard ends the letter unpublished, for good, and lets its followers go on.
func (s *Store) Discard(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionDiscard, by, func(l *DeadLetter) (planned, error) {
		return s.skip(ctx, l, s.resolved(Outcome{Kind: OutcomeDiscarded, Note: by.Reason}, Change{}), "is never published")
	})
}

// ResolveByHand ends a letter that was settled elsewhere and lets its followers
// go on.
func (s *Store) ResolveByHand(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionResolve, by, func(l *DeadLetter) (planned, error) {
		return s.skip(ctx, l, s.resolved(Outcome{Kind: OutcomeByHand, Note: by.Reason}, Change{}), "is not published by the relay")
	})
}

// Release lets the later events of the aggregate pass the letter, which stays,
// manual, to be replayed out of order or discarded later.
func (s *Store) Release(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionRelease, by, func(l *DeadLetter) (planned, error) {
		if l.Status == Manual && l.Released {
			return planned{done: true}, nil
		}
		p := s.suspended("released by " + by.Name + reasonOf(by))
		p.set = append(p.set, assignment{"released", true})
		change := p.change
		p.change = func(l *DeadLetter) { change(l); l.Released = true }
		return s.skip(ctx, l, p, "is passed by later events")
	})
}

// Park puts the letter aside: it is manual, not tried and holding back its
// followers, until an operator says otherwise.
func (s *Store) Park(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionPark, by, func(l *DeadLetter) (planned, error) {
		if l.Status == Manual {
			return planned{done: true}, nil
		}
		return s.suspended("put aside by " + by.Name + reasonOf(by)), nil
	})
}

// skip puts into the history which event an operator skips, and how many go on
// behind it.
func (s *Store) skip(ctx context.Context, l *DeadLetter, p planned, what string) (planned, error) {
	n, more, err := s.followers(ctx, l)
	if err != nil {
		return planned{}, err
	}
	skipped := fmt.Sprintf("skipped: %s seq %d of %s %s", l.EventType, l.Sequence, l.AggregateID, what)
	switch {
	case l.Released:
		skipped += "; nothing waited for it"
	case more:
		skipped += fmt.Sprintf("; more than %d dead letters behind it go on", n)
	case n > 0:
		skipped += fmt.Sprintf("; dead letters behind it that go on: %d", n)
	default:
		skipped += "; no dead letter is behind it"
	}
	if p.line.Outcome != "" {
		skipped = p.line.Outcome + "; " + skipped
	}
	p.line.Outcome = skipped
	return p, nil
}

// maxBehind is how many letters of a chain are counted.
const maxFollowers = 1000

// behind counts the open letters of the aggregate that stand behind l; more says
// that there are more than n.
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
		return 0, false, fmt.Errorf("read what is behind dead letter %s: %w", l.EventID, err)
	}
	return min(n, maxFollowers), n > maxFollowers, nil
}

// Archive marks a letter that retention has moved out; only resolved and failed
// ones can be. The row stays.
func (s *Store) Archive(ctx context.Context, event gocql.UUID, by Actor) error {
	return s.operate(ctx, event, ActionArchive, by, func(*DeadLetter) (planned, error) {
		return planned{to: Archived, change: func(*DeadLetter) {}}, nil
	})
}

// because is an operator's reason behind what was done.
func reasonOf(by Actor) string {
	if by.Reason == "" {
		return ""
	}
	return ": " + by.Reason
}

func (s *Store) suspended(waiting string) planned {
	return planned{
		to:  Manual,
		set: append(unclaimed, assignment{"next_attempt", nil}, assignment{"strategy", StrategyManual}, assignment{"waiting", waiting}),
		change: func(l *DeadLetter) {
			l.ClaimedBy, l.ClaimedUntil, l.NextAttempt, l.Strategy, l.Waiting = "", time.Time{}, time.Time{}, StrategyManual, waiting
		},
	}
}

// Edit replaces what is published of a letter, under a new id, which it returns,
// and has the relay publish it now; one that waits behind another goes on
// waiting. expect, unless 0, is the letter's version that the operator saw: if
// it has another one by now the error is a *VersionError.
//
// The letter keeps its place in its aggregate's order, its id and the event as
// it was, to the byte. Which of the two is published is decided by one
// transaction on the letter, so no crash can lose the place or publish both. An
// edit may be edited again until it is published. Edits shows all of them.
//
// After an error other than *VersionError, *RefusedError or ErrInvalidEdit the
// edit may have been made or not; Read says it.
func (s *Store) Edit(ctx context.Context, event gocql.UUID, e Edit, by Actor, expect int64) (gocql.UUID, error) {
	by.Version = expect
	edited := Edited{ID: gocql.MustRandomUUID(), Edit: e, Actor: by, At: s.db.Millis()}
	if by.Name == "" {
		return gocql.UUID{}, fmt.Errorf("edit dead letter %s: the actor has no name", event)
	}
	letter, err := s.Read(ctx, event)
	if err != nil {
		return gocql.UUID{}, fmt.Errorf("edit: %w", err)
	}
	if err := e.Fits(&letter); err != nil {
		return gocql.UUID{}, err
	}
	// The edit comes first: a letter that names one has it.
	for a := s.db.Retry(ctx); ; {
		if err = s.edits.keep(ctx, event, &edited); err == nil {
			break
		}
		if permanent(err) || !a.Pause() {
			return gocql.UUID{}, err
		}
	}
	err = s.operate(ctx, event, ActionEdit, by, func(l *DeadLetter) (planned, error) {
		if l.EditedID != letter.EditedID { // what Fits looked at
			return planned{}, &VersionError{EventID: event, Have: l.Version, Want: letter.Version}
		}
		if l.Status == Parked {
			return planned{
				to: Parked, set: []assignment{{"edited_id", edited.ID}}, line: Change{Outcome: edited.line()},
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
		return gocql.UUID{}, err
	}
	return edited.ID, nil
}

// operate makes an operator's change, after telling the relay of it. Nobody
// takes a letter from the owner of a claim that has not run out.
func (s *Store) operate(ctx context.Context, event gocql.UUID, action Action, by Actor, plan func(*DeadLetter) (planned, error)) error {
	if by.Name == "" {
		return fmt.Errorf("%s dead letter %s: the actor has no name", action, event)
	}
	var asked int64
	_, err := s.change(ctx, event, action, func(l *DeadLetter) (planned, error) {
		if err := by.checkVersion(l); err != nil {
			return planned{}, err
		}
		if did, err := s.didFor(ctx, l, by.Job); err != nil || did {
			return planned{done: did}, err
		}
		if err := s.allowed(action, l); err != nil {
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
		if (l.Status.Open() || p.to.Open()) && asked != l.Version+1 {
			if err := s.request(ctx, l, action, by.Name); err != nil {
				return planned{}, err
			}
			asked = l.Version + 1
		}
		return p, nil
	})
	return err
}

func (s *Store) allowed(action Action, l *DeadLetter) error {
	if l.Status == Parked && (action == ActionReplay || action == ActionRelease) {
		return refused(action, l, "it goes out once the letters before it in its aggregate are gone: act on the first")
	}
	if err := may(action, l); err != nil {
		return err
	}
	if l.Status == Processing && s.db.Now().Before(l.ClaimedUntil) {
		return refused(action, l, "try again when the claim has run out")
	}
	return nil
}

// Check returns nil if an operator's action could begin on the letter as it
// stands in l, and a *RefusedError if not.
func (s *Store) Check(action Action, l *DeadLetter) error { return s.allowed(action, l) }
