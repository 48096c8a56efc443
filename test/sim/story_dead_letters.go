package sim

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// engineer is the actor of changes of dead letters in stories.
var engineer = dlq.Actor{Name: "engineer", Reason: "simulated story"}

// Breaker returns the breaker status of the current relay.
func (s *Story) Breaker() relay.BreakerStatus { return s.w.relay().relay.Status().Breaker }

// Problems returns the problems that the relay reports and alerts on, none when it is
// ready.
func (s *Story) Problems() []string { return s.w.relay().relay.Status().Problems }

// BreakerChanges returns how often the breaker of the current relay entered a state.
func (s *Story) BreakerChanges(to relay.BreakerState) int {
	return int(s.w.relay().value(s.w, "outbox_breaker_changes_total", to.String()))
}

// Letters returns all dead letters, including resolved ones, newest first.
func (s *Story) DeadLetters() []dlq.DeadLetter {
	s.w.t.Helper()
	var out []dlq.DeadLetter
	store := s.deadLetters()
	if err := store.List(context.Background(), dlq.Filter{}, func(l *dlq.DeadLetter) error {
		whole, err := store.Read(context.Background(), l.EventID)
		out = append(out, whole)
		return err
	}); err != nil {
		s.w.t.Fatalf("list the dead letters: %v", err)
	}
	return out
}

// Suspend suspends a dead letter until a person acts, like `outbox dlq suspend`.
func (s *Story) Suspend(event gocql.UUID) error {
	return s.deadLetters().Suspend(context.Background(), event, engineer)
}

// Replay requests the replay of a dead letter, like `outbox dlq replay`.
func (s *Story) Replay(event gocql.UUID) error {
	return s.deadLetters().Replay(context.Background(), event, engineer)
}

func (s *Story) deadLetters() *dlq.Store {
	s.w.t.Helper()
	store, err := dlq.Open(s.w.session.Session, keyspace)
	if err != nil {
		s.w.t.Fatalf("open the dead letters: %v", err)
	}
	return store
}
