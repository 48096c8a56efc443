package sim

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// engineer is who acts on dead letters in stories.
var engineer = dlq.Actor{Name: "engineer", Reason: "told in a story"}

// Breaker is the breaker of the relay that runs.
func (s *Story) Breaker() relay.BreakerStatus { return s.w.relay().relay.Status().Breaker }

// Problems are what the relay says is wrong, none when it is ready: what alerts
// a person.
func (s *Story) Problems() []string { return s.w.relay().relay.Status().Problems }

// BreakerChanges is how often the breaker of the relay that runs came into a state.
func (s *Story) BreakerChanges(to relay.BreakerState) int {
	return int(s.w.relay().value(s.w, "outbox_relay_breaker_changes_total", to.String()))
}

// Letters are all dead letters there ever were, the settled ones included,
// newest first.
func (s *Story) Letters() []dlq.DeadLetter {
	s.w.t.Helper()
	var out []dlq.DeadLetter
	store := s.letters()
	if err := store.List(context.Background(), dlq.Filter{}, func(l *dlq.DeadLetter) error {
		whole, err := store.Read(context.Background(), l.EventID)
		out = append(out, whole)
		return err
	}); err != nil {
		s.w.t.Fatalf("list the dead letters: %v", err)
	}
	return out
}

// Park puts a dead letter aside, as `outbox dlq park` does: it waits for a person.
func (s *Story) Park(event gocql.UUID) error {
	return s.letters().Park(context.Background(), event, engineer)
}

// Replay asks for a dead letter to be published, as `outbox dlq replay` does.
func (s *Story) Replay(event gocql.UUID) error {
	return s.letters().Replay(context.Background(), event, engineer)
}

func (s *Story) letters() *dlq.Store {
	s.w.t.Helper()
	store, err := dlq.Open(s.w.session.Session, keyspace)
	if err != nil {
		s.w.t.Fatalf("open the dead letters: %v", err)
	}
	return store
}
