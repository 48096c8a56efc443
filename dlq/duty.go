package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/lease"
)

// Duty is a lease for work that one process at a time does for all, such as sending
// notifications. The next owner receives its state.
type Duty struct {
	*lease.Lease
	s *Store
}

// State returns the last saved state, of any owner; empty if there is none.
func (d *Duty) State(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.s.db.Timeout)
	defer cancel()
	var state string
	err := d.s.db.Select(ctx, "SELECT state FROM "+d.Table+" WHERE name = ?", d.Name).Consistency(d.s.db.Serial).Scan(&state)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return "", fmt.Errorf("read the state of duty %s: %w", d.Name, err)
	}
	return state, nil
}

// Save stores state for the next owner. It returns false if this owner has lost the
// duty: nothing was stored, and the owner must stop its work.
func (d *Duty) Save(ctx context.Context, state string) (bool, error) {
	saved, err := d.Apply(ctx, "UPDATE "+d.Table+" SET state = ? WHERE name = ? IF owner = ?", state, d.Name, d.Owner)
	if err != nil {
		return false, fmt.Errorf("save the state of duty %s: %w", d.Name, err)
	}
	return saved, nil
}
