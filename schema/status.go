package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
)

// State is the state of a migration.
type State string

// The states of a migration.
const (
	// StateApplied: recorded with the checksum that this program has.
	StateApplied State = "applied"
	// StatePending: Migrate would apply it.
	StatePending State = "pending"
	// StateChanged: recorded with another checksum; Migrate refuses to continue.
	StateChanged State = "changed"
	// StateUnknown: recorded, but not part of this version.
	StateUnknown State = "unknown"
)

// Applied is a row of schema_migrations.
type Applied struct {
	Name     string    `json:"name"`
	Checksum string    `json:"checksum"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
}

// MigrationStatus is the status of one migration, known or recorded.
type MigrationStatus struct {
	Version int      `json:"version"`
	Name    string   `json:"name"`
	State   State    `json:"state"`
	Applied *Applied `json:"applied,omitempty"` // nil while pending
}

// Report is the result of Status.
type Report struct {
	Keyspace string `json:"keyspace"`
	Server   Server `json:"server"`
	// Migrations contains all known and recorded migrations, by version.
	Migrations []MigrationStatus `json:"migrations"`
	// LockedBy is the instance that is migrating; empty for none.
	LockedBy string `json:"locked_by,omitempty"`
}

// UpToDate reports whether no migration is pending.
func (r Report) UpToDate() bool {
	return !slices.ContainsFunc(r.Migrations, func(m MigrationStatus) bool {
		return m.State == StatePending || m.State == StateChanged
	})
}

// Status returns the migrations of the keyspace. It changes nothing; in a
// missing keyspace all are pending. Only o.Keyspace is used.
func Status(ctx context.Context, s *gocql.Session, o Options) (Report, error) {
	o = o.withDefaults()
	r := Report{Keyspace: o.Keyspace}
	if err := o.validate(); err != nil {
		return r, err
	}
	migrations, err := load(files)
	if err != nil {
		return r, err
	}
	if r.Server, err = Detect(ctx, s); err != nil {
		return r, err
	}
	exist, err := tables(ctx, s, o.Keyspace)
	if err != nil {
		return r, err
	}
	applied := map[int]Applied{}
	if exist["schema_migrations"] {
		if applied, err = readApplied(ctx, s, o.Keyspace); err != nil {
			return r, err
		}
	}
	if exist["schema_locks"] {
		err := s.Query("SELECT owner FROM "+o.Keyspace+".schema_locks WHERE name = ?", lockName).
			WithContext(ctx).Consistency(gocql.Quorum).Scan(&r.LockedBy)
		if err != nil && !errors.Is(err, gocql.ErrNotFound) {
			return r, fmt.Errorf("read the migration lock: %w", err)
		}
	}
	for _, m := range migrations {
		st := MigrationStatus{Version: m.version, Name: m.name, State: StatePending}
		if a, ok := applied[m.version]; ok {
			st.State, st.Applied = StateApplied, &a
			if a.Checksum != m.checksum() {
				st.State = StateChanged
			}
			delete(applied, m.version)
		}
		r.Migrations = append(r.Migrations, st)
	}
	for version, a := range applied {
		r.Migrations = append(r.Migrations, MigrationStatus{Version: version, Name: a.Name, State: StateUnknown, Applied: &a})
	}
	slices.SortFunc(r.Migrations, func(a, b MigrationStatus) int { return a.Version - b.Version })
	return r, nil
}

// readApplied reads the recorded migrations, by version. It reads at SERIAL to
// include a record whose conditional insert timed out.
func readApplied(ctx context.Context, s *gocql.Session, keyspace string) (map[int]Applied, error) {
	out := map[int]Applied{}
	iter := s.Query("SELECT version, name, checksum, applied_at, applied_by FROM "+keyspace+".schema_migrations WHERE component = ?", component).
		WithContext(ctx).Consistency(gocql.Serial).Iter()
	var version int
	var a Applied
	for iter.Scan(&version, &a.Name, &a.Checksum, &a.At, &a.By) {
		out[version] = a
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read schema_migrations: %w", err)
	}
	return out, nil
}
