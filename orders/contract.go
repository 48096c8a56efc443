package orders

import (
	"cmp"
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// loadSchema waits until the schema of the events of a type is known. It precedes the place at
// the database, which must not wait for the schema registry. The error is an *UnavailableError.
func (s *Service) loadSchema(ctx context.Context, eventType string) error {
	if err := s.cfg.Schemas.Load(ctx, s.topic(eventType)); err != nil {
		return s.registryAway(ctx, gocql.UUID{}, false, err)
	}
	return nil
}

// schemaOf returns the URL of the schema that the payload of e fits, "" if its topic has none.
// unknown reports whether an earlier request may have stored the change. The error is an
// *InvalidError of the whole request, because the payload is the order after it, or an
// *UnavailableError.
func (s *Service) schemaOf(ctx context.Context, e *outbox.Event, unknown bool) (string, error) {
	url, err := s.cfg.Schemas.Check(ctx, s.topic(e.Type), e.Payload)
	if bad, ok := errors.AsType[*registry.ContractError](err); ok {
		return "", jsonform.Invalid("", "its event "+e.Type+" "+bad.Problem)
	}
	if err != nil {
		return "", s.registryAway(ctx, e.AggregateID, unknown, err)
	}
	return url, nil
}

func (s *Service) topic(eventType string) string { return cmp.Or(s.cfg.Topics[eventType], eventType) }

func (s *Service) registryAway(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	s.log.WarnContext(ctx, "schema registry unavailable", "aggregate_id", id, "outcome_unknown", unknown, "err", err)
	return &UnavailableError{OrderID: id, Unknown: unknown, RetryAfter: s.cfg.RetryAfter, Err: err}
}
