package schedule

import (
	"context"
	"fmt"
	"time"
)

// leaseName is the one lease there is.
const leaseName = "scheduler"

const (
	takeLease = "INSERT INTO schedule_leases (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?"
	keepLease = "UPDATE schedule_leases USING TTL ? SET owner = ? WHERE name = ? IF owner = ?"
	dropLease = "DELETE FROM schedule_leases WHERE name = ? IF owner = ?"
)

// lease takes or extends the lease for owner; false means that another has it.
func (s *Store) lease(ctx context.Context, owner string, ttl time.Duration) (bool, error) {
	seconds := int(ttl / time.Second)
	kept, err := s.change(ctx, keepLease, seconds, owner, leaseName, owner)
	if err == nil && !kept {
		kept, err = s.change(ctx, takeLease, leaseName, owner, seconds)
	}
	if err != nil {
		return false, fmt.Errorf("take the scheduler's lease: %w", err)
	}
	return kept, nil
}

// unlease gives the lease back, so that another need not wait for its end.
func (s *Store) unlease(ctx context.Context, owner string) error {
	if _, err := s.change(ctx, dropLease, leaseName, owner); err != nil {
		return fmt.Errorf("give the scheduler's lease back: %w", err)
	}
	return nil
}
