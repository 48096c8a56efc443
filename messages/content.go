package messages

import (
	"context"
	"errors"
	"maps"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// Content is what a message carries. It never changes.
type Content struct {
	ContentType string
	Headers     map[string]string
	Payload     []byte
}

// Content returns what a message carries, for as long as Get knows of it. Of one
// that was taken back nothing is kept: that is ErrNotFound. Other errors are
// *OverloadedError or *UnavailableError.
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
		// The key stands among the headers there.
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
	return c, nil
}
