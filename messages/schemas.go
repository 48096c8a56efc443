package messages

import (
	"context"
	"errors"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// checkSchemas sets the schemas of the valid items, or their errors, and returns the number of
// the latter.
func (s *Service) checkSchemas(ctx context.Context, items []Item, results []Result) (refused int) {
	if s.cfg.Schemas == nil {
		return 0
	}
	for i := range items {
		if results[i].Err != nil {
			continue
		}
		items[i].schema, results[i].Err = s.findSchema(ctx, &items[i].NewMessage)
		if results[i].Err == nil {
			continue
		}
		refused++
		result := resultInvalid
		if errors.As(results[i].Err, new(*UnavailableError)) {
			result = resultUnavailable
		}
		s.metrics.results.WithLabelValues(result).Inc()
	}
	return refused
}

// findSchema returns the URL of the schema that a message fits, "" if its topic has none. The
// error is an *InvalidError or an *UnavailableError.
func (s *Service) findSchema(ctx context.Context, n *NewMessage) (string, error) {
	if n.Tombstone {
		return "", nil // a schema describes values
	}
	url, err := s.cfg.Schemas.Check(ctx, n.Topic, n.bytes())
	if bad, ok := errors.AsType[*registry.ContractError](err); ok {
		return "", jsonform.Invalid("payload", bad.Problem)
	}
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "schema registry unavailable", "topic", n.Topic, "err", err)
		return "", &UnavailableError{RetryAfter: s.cfg.RetryAfter, Err: err}
	}
	return url, nil
}
