package messages

import (
	"context"
	"errors"
	"maps"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// Content is the payload, media type and headers of a message. It never
// changes.
type Content struct {
	ContentType string
	Headers     map[string]string
	Payload     []byte // nil for a tombstone
}

// Content returns the content of a message while Get returns the message. The
// content of a cancelled message is not kept; the error is ErrNotFound, as for a
// payload that its store does not have any more. Other
// errors are *OverloadedError or *UnavailableError.
func (s *Service) Content(ctx context.Context, id gocql.UUID) (Content, error) {
	var c Content
	found := false
	err := s.read(ctx, id, func(ctx context.Context) error {
		m, err := s.schedule.Read(ctx, id)
		if err == nil {
			c, found = Content{m.ContentType, m.Headers, m.Payload}, m.State != schedule.Cancelled
			return nil
		}
		if !errors.Is(err, schedule.ErrNotFound) {
			return err
		}
		e, there, err := s.store.event(ctx, id)
		// The stored headers contain the key.
		headers := maps.Clone(e.Headers)
		delete(headers, outbox.HeaderPartitionKey)
		c, found = Content{e.ContentType, headers, e.Payload}, there
		return err
	})
	switch {
	case err != nil:
		return Content{}, err
	case !found:
		return Content{}, ErrNotFound
	}
	return s.loadPayload(ctx, id, c)
}
