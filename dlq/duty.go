package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/lease"
)

// Duty is a lease for something that one process at a time does for all, such as
// sending notifications. Its state stays for the next owner.
type Duty struct {
	*lease.Lease
	s *Store
}

// State is what Save kept last, by whomever; empty if nothing was.
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

// Save stores state for the next owner. False means that this owner has the duty no
// more: nothing was stored, and what the owner does must stop.
func (d *Duty) Save(ctx context.Context, state string) (bool, error) {
	saved, err := d.Apply(ctx, "UPDATE "+d.Table+" SET state = ? WHERE name = ? IF owner = ?", state, d.Name, d.Owner)
	if err != nil {
		return false, fmt.Errorf("save the state of duty %s: %w", d.Name, err)
	}
	return saved, nil
}
