package messages

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// PayloadError is an error of the store of payloads, in the chain of an
// *UnavailableError.
type PayloadError struct{ Err error }

// Error returns the error of the store.
func (e *PayloadError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the store.
func (e *PayloadError) Unwrap() error { return e.Err }

// stores reports whether the payload of e is stored outside of the event.
func (c *Config) stores(e *outbox.Event) bool {
	return c.Payloads != nil && e.Bytes() > outbox.MaxEventBytes
}

// storePayload stores the payload of a large message before the message itself. The
// payload's lifetime begins when the message is due.
func (s *Service) storePayload(ctx context.Context, m *schedule.Message, id identity) error {
	e := m.Event()
	if !s.cfg.stores(&e) {
		return nil
	}
	moved, err := outbox.MovePayload(ctx, s.cfg.Payloads, e, 0)
	if err != nil {
		return s.noPayload(ctx, id.id, id.retried, err)
	}
	m.Payload, m.Headers = moved.Payload, moved.Headers
	delete(m.Headers, outbox.HeaderPartitionKey) // the message contains the key
	return nil
}

// loadPayload replaces a reference in the content of a message by the payload. It is
// ErrNotFound if the store does not have it any more; without a store the content
// remains the reference.
func (s *Service) loadPayload(ctx context.Context, id gocql.UUID, c Content) (Content, error) {
	if s.cfg.Payloads == nil {
		return c, nil
	}
	// The SDKs of some stores retry until the context ends, and HTTP's timeout sends no response.
	reading, cancel := context.WithTimeout(ctx, s.cfg.WriteBudget)
	defer cancel()
	e, err := outbox.LoadPayload(reading, s.cfg.Payloads, outbox.Event{ID: outbox.IDFromUUID(id), Payload: c.Payload, Headers: c.Headers})
	switch {
	case errors.Is(err, payload.ErrNotFound), errors.Is(err, payload.ErrDamaged):
		s.cfg.Logger.WarnContext(ctx, "a message has no payload", "event_id", id, "err", err)
		return Content{}, ErrNotFound
	case err != nil:
		return Content{}, s.noPayload(ctx, id, false, err)
	}
	return Content{c.ContentType, e.Headers, e.Payload}, nil
}

func (s *Service) noPayload(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	s.cfg.Logger.WarnContext(ctx, "store of payloads unavailable", "event_id", id, "outcome_unknown", unknown, "err", err)
	return &UnavailableError{ID: id, Unknown: unknown, RetryAfter: s.cfg.RetryAfter, Err: &PayloadError{err}}
}
