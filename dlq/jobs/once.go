package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

// CreateOnce is Create for the first request with a key. For each further one it returns the job
// of the first, as it is now; repeated is then true. After an error the same call may be repeated.
func (s *Store) CreateOnce(ctx context.Context, request requestkeys.Request, spec Spec, by dlq.Actor) (_ *Job, repeated bool, err error) {
	if err := spec.Validate(); err != nil {
		return nil, false, fmt.Errorf("create a job: %w", err)
	}
	fresh := gocql.UUIDFromTime(s.db.Clock.Now())
	id, err := s.claim(ctx, request, fresh)
	if err != nil {
		return nil, false, err
	}
	if id != fresh {
		j, err := s.Read(ctx, id)
		if !errors.Is(err, ErrNoJob) {
			return j, true, err
		}
		// The first request has not stored its job, or not yet: whoever is first does.
	}
	if _, err = s.create(ctx, id, spec, by); err != nil {
		return nil, false, err
	}
	j, err := s.Read(ctx, id)
	return j, id != fresh, err
}

// claim returns the id of the job of the first request with the key, which is fresh for that one.
func (s *Store) claim(ctx context.Context, request requestkeys.Request, fresh gocql.UUID) (gocql.UUID, error) {
	for a := s.db.Retry(ctx); ; {
		first, same, err := s.tryClaim(ctx, request, requestkeys.Result{ID: fresh, CreatedAt: fresh.Time()})
		switch {
		case err == nil && !same:
			return first.ID, requestkeys.ErrReuse
		case err == nil || db.Permanent(err) || !a.Pause(): // repeating settles an unknown outcome
			return first.ID, err
		}
	}
}

func (s *Store) tryClaim(ctx context.Context, request requestkeys.Request, fresh requestkeys.Result) (requestkeys.Result, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	query := func(stmt string, args ...any) *gocql.Query {
		return s.db.Query(ctx, stmt, args...).SerialConsistency(s.db.Serial)
	}
	return requestkeys.Claim(query, s.db.Keyspace+"."+requestkeys.Table, request, fresh)
}
