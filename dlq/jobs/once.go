package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// Once makes repeated requests create one job.
type Once struct {
	// Client is who sends them, and Key the Idempotency-Key, which expires after 7 days.
	Client, Key string
	// Hash is the content of the request.
	Hash []byte
}

// ErrKeyReuse is returned for a key that belongs to a request with another content.
var ErrKeyReuse = errors.New("the Idempotency-Key belongs to another request")

// CreateOnce is Create for the first request with a key. For each further one it returns the job
// of the first, as it is now; repeated is then true. After an error the same call may be repeated.
func (s *Store) CreateOnce(ctx context.Context, once Once, spec Spec, by dlq.Actor) (_ *Job, repeated bool, err error) {
	if err := spec.Validate(); err != nil {
		return nil, false, fmt.Errorf("create a job: %w", err)
	}
	fresh := gocql.UUIDFromTime(s.db.Clock.Now())
	id, err := s.claim(ctx, once, fresh)
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
func (s *Store) claim(ctx context.Context, once Once, fresh gocql.UUID) (gocql.UUID, error) {
	for a := s.db.Retry(ctx); ; {
		id, hash, err := s.tryClaim(ctx, once, fresh)
		switch {
		case err == nil && id != fresh && !bytes.Equal(hash, once.Hash):
			return id, ErrKeyReuse
		case err == nil:
			return id, nil
		case db.Permanent(err) || !a.Pause(): // repeating settles an unknown outcome
			return id, fmt.Errorf("claim Idempotency-Key: %w", err)
		}
	}
}

func (s *Store) tryClaim(ctx context.Context, once Once, fresh gocql.UUID) (id gocql.UUID, hash []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	cells := make(map[string]any)
	applied, err := s.db.Query(ctx, s.stmt.claim, once.Client, once.Key, once.Hash, fresh).SerialConsistency(s.db.Serial).MapScanCAS(cells)
	if err != nil || applied {
		return fresh, once.Hash, err
	}
	id, _ = cells["job_id"].(gocql.UUID)
	hash, _ = cells["request_hash"].([]byte)
	return id, hash, nil
}
