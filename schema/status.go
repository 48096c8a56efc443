package schema

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
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
	// StateAbsent: the keyspace does not have its component.
	StateAbsent State = "absent"
	// StateUnknown: recorded, but not part of this version.
	StateUnknown State = "unknown"
)

// Applied is a row of schema_migrations.
type Applied struct {
	Name     string    `json:"name"`
	Checksum string    `json:"checksum"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`

	component Component
}

// MigrationStatus is the status of one migration, known or recorded.
type MigrationStatus struct {
	Version   int       `json:"version"`
	Name      string    `json:"name"`
	Component Component `json:"component"`
	State     State     `json:"state"`
	Applied   *Applied  `json:"applied,omitempty"` // nil while pending or absent
}

// Report is the result of Status.
type Report struct {
	Keyspace string `json:"keyspace"`
	Server   Server `json:"server"`
	// Components contains the components of the keyspace; none before the first Migrate.
	Components []Component `json:"components"`
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

// Status returns the migrations of the keyspace. It changes nothing. A migration is pending
// if Migrate would apply it with the same options; only o.Keyspace and o.Components are used.
func Status(ctx context.Context, s *gocql.Session, o Options) (Report, error) {
	o = o.withDefaults()
	r := Report{Keyspace: o.Keyspace, Components: []Component{}}
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
	var rec recorded
	if exist["schema_migrations"] {
		if rec, err = readRecorded(ctx, s, o.Keyspace); err != nil {
			return r, err
		}
		r.Components = append(r.Components, rec.components...)
		if chosen(r.Components) {
			r.Components, _ = withRequired(r.Components) // they are valid
		}
	}
	wanted := rec.with(o.Components)
	if exist["schema_locks"] {
		if r.LockedBy, err = readLockHolder(ctx, s, o.Keyspace); err != nil {
			return r, err
		}
	}
	for _, m := range migrations {
		st := MigrationStatus{Version: m.version, Name: m.name, Component: m.component, State: StateAbsent}
		if slices.Contains(wanted, m.component) {
			st.State = StatePending
		}
		if a, ok := rec.applied[m.version]; ok {
			st.State, st.Applied = StateApplied, &a
			if a.Checksum != m.checksum() {
				st.State = StateChanged
			}
			delete(rec.applied, m.version)
		}
		r.Migrations = append(r.Migrations, st)
	}
	for version, a := range rec.applied {
		r.Migrations = append(r.Migrations, MigrationStatus{Version: version, Name: a.Name, Component: a.component, State: StateUnknown, Applied: &a})
	}
	slices.SortFunc(r.Migrations, func(a, b MigrationStatus) int { return a.Version - b.Version })
	return r, nil
}

// recorded is the content of schema_migrations.
type recorded struct {
	components []Component // whose declarations are recorded
	applied    map[int]Applied
}

// with returns the components that the keyspace is to have after some were added: the recorded
// ones and these; the default for a new keyspace without a choice.
func (r recorded) with(some []Component) []Component {
	if len(some) == 0 && !chosen(r.components) {
		return byDefault()
	}
	all, _ := withRequired(slices.Concat(r.components, some)) // both are valid
	return all
}

// readRecorded reads the declarations and the migrations of all components. It reads at
// SERIAL, a partition at a time, to include a record whose conditional insert timed out.
func readRecorded(ctx context.Context, s *gocql.Session, keyspace string) (recorded, error) {
	out := recorded{applied: map[int]Applied{}}
	for _, c := range Components() {
		rows := map[int]Applied{}
		err := cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
			iter := s.Query("SELECT version, name, checksum, applied_at, applied_by FROM "+keyspace+".schema_migrations WHERE component = ?", c).
				WithContext(ctx).Consistency(gocql.Serial).Iter()
			var version int
			a := Applied{component: c}
			for iter.Scan(&version, &a.Name, &a.Checksum, &a.At, &a.By) {
				rows[version] = a
			}
			return iter.Close()
		})
		if err != nil {
			return out, fmt.Errorf("read schema_migrations: %w", err)
		}
		if _, ok := rows[declared]; ok {
			out.components = append(out.components, c)
			delete(rows, declared)
		}
		maps.Copy(out.applied, rows)
	}
	return out, nil
}
