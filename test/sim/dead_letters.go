package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// letter is the final state of a dead letter.
type deadLetter struct {
	status    dlq.Status
	class     string
	outcome   dlq.OutcomeKind
	unblocked bool
	buried    time.Time // when the database stored it
	resolved  time.Time
	// aggregate is its aggregate as text, reason the error.
	aggregate, reason string
}

// ended reports whether an operator resolved it without publishing.
func (l deadLetter) ended() bool {
	return l.outcome == dlq.OutcomeDiscarded || l.outcome == dlq.OutcomeByHand
}

func (e *evidence) scanDeadLetters(w *world, scan scanner) {
	var id gocql.UUID
	var l deadLetter
	var buried, resolved int64
	// table_name is written once, with the dead letter. Clocks of operators differ, so
	// the time of resolution is the database's.
	scan("SELECT event_id, aggregate_id, error_text, status, error_class, outcome, unblocked, WRITETIME(resolved_at), WRITETIME(table_name) FROM "+deadLetters,
		[]any{&id, &l.aggregate, &l.reason, (*string)(&l.status), &l.class, (*string)(&l.outcome), &l.unblocked, &resolved, &buried}, func() {
			l.buried, l.resolved = time.UnixMicro(buried), time.UnixMicro(resolved)
			if w.settings.node.Now != nil {
				ahead := time.Until(w.settings.node.Now())
				l.buried, l.resolved = l.buried.Add(-ahead), l.resolved.Add(-ahead)
			}
			e.deadLetters[id] = l
			w.seen.deadLetters++
			switch {
			case l.outcome == dlq.OutcomeReplayed || l.outcome == dlq.OutcomeFound:
				w.seen.replayed++
			case l.ended():
				w.seen.discarded++
			}
		})
}

// operator is the actor of changes of dead letters.
var operator = dlq.Actor{Name: "operator", Reason: "simulated"}

// deadLetters returns the operator's store of dead letters.
func (w *world) deadLetters() *dlq.Store {
	w.t.Helper()
	s, err := dlq.Open(w.session.Session, keyspace)
	if err != nil {
		w.t.Fatalf("open the dead letters: %v", err)
	}
	return s
}

// openDeadLetters returns the unresolved dead letters, or an error while the database fails.
func (w *world) openDeadLetters() (open []dlq.ChainEntry, err error) {
	err = w.deadLetters().Chains(context.Background(), keyspace+"."+events, func(e dlq.ChainEntry) error {
		open = append(open, e)
		return nil
	})
	return open, err
}

// operate applies a random operation to a dead letter and ignores failures.
func (w *world) operate(rnd *rand.Rand, store *dlq.Store) {
	open, err := w.openDeadLetters()
	if err != nil || len(open) == 0 {
		return
	}
	id := open[rnd.IntN(len(open))].EventID
	do := store.Replay
	switch rnd.IntN(12) {
	case 0:
		do = store.Discard
	case 1:
		do = store.ResolveByHand
	case 2, 3:
		do = store.Unblock
	case 4, 5:
		do = store.Suspend
	}
	_ = do(context.Background(), id, operator)
}

// settleDeadLetters resolves all dead letters after the faults have ended: an operator
// replays those with status suspended or failed, and discards dead letters that can never be
// published. All others must be published without an operator.
func (w *world) settleDeadLetters() {
	w.t.Helper()
	ctx, store := context.Background(), w.deadLetters()
	for deadline := time.Now().Add(8 * time.Hour); ; time.Sleep(time.Minute) {
		open, err := w.openDeadLetters()
		if err != nil {
			w.t.Errorf("read the dead letters: %v", err)
			return
		}
		if len(open) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, e := range open[:min(10, len(open))] {
				w.t.Errorf("event %s (%s %s, seq %d) is still a dead letter, %s of class %s; claimed by %q until %s, next %s",
					e.EventID, e.AggregateType, e.AggregateID, e.Sequence, e.Status, e.ErrorClass, e.ClaimedBy, w.after(e.ClaimedUntil), w.after(e.NextAttempt))
			}
			w.t.Errorf("%d dead letters are open", len(open))
			return
		}
		for _, e := range open {
			if e.Status != dlq.Suspended && e.Status != dlq.Failed {
				continue
			}
			do := store.Replay
			if poison(e.ErrorClass) {
				do = store.Discard
			}
			if err := do(ctx, e.EventID, operator); err != nil {
				w.t.Errorf("resolve a dead letter: %v", err)
			}
		}
	}
}

// poison reports whether a dead letter of the class can never be published here.
func poison(class string) bool { return class == "undecodable" || class == "record_too_large" }

// checkDeadLetters: all dead letters are resolved, and only events that an operator ended are
// not published.
func (w *world) checkDeadLetters(e *evidence) {
	w.t.Helper()
	for id, l := range e.deadLetters {
		if l.status.Open() {
			w.t.Errorf("event %s is a dead letter of class %s, %s after all faults ended", id, l.class, l.status)
		}
	}
	for _, r := range e.records {
		if l, ok := e.deadLetters[r.ID.UUID()]; ok && l.ended() && r.at.After(l.resolved.Add(time.Second)) {
			w.t.Errorf("event %s (order %s, seq %d) was ended by an operator at %s and published at %s",
				r.ID, r.AggregateID, r.Sequence, w.after(l.resolved), w.after(r.at))
		}
	}
}
