package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// bootstrap is the number of migrations before the lock: the first creates the
// keyspace and the table of the lock.
const bootstrap = 1

// ChecksumError reports that a migration was changed after it was applied.
type ChecksumError struct {
	Version            int
	Name               string
	Recorded, Embedded string
}

// Error returns the migration and the fix.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("migration %03d_%s was applied with checksum %s, this program has %s: "+
		"an applied migration must not change; add a new one instead, or run the program that matches the keyspace",
		e.Version, e.Name, e.Recorded, e.Embedded)
}

// Migrate brings the keyspace up to date. Any number of instances may call it
// concurrently; one applies the migrations, the others wait. The session needs
// no keyspace. It returns when all nodes agree on the schema.
//
// After an error, a crash or a cancelled ctx the keyspace has a prefix of the
// migrations; calling Migrate again completes them. A migration that was
// changed after it was applied is a *ChecksumError before any change. An
// unknown migration is ignored, because a newer version may have migrated the
// keyspace. It leaves no component of the keyspace incomplete, whatever o.Components contains.
func Migrate(ctx context.Context, s *gocql.Session, o Options) error {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	migrations, err := load(files)
	if err != nil {
		return err
	}
	m := migrator{session: s, options: o, migrations: migrations}
	if err := m.run(ctx); err != nil {
		return fmt.Errorf("migrate keyspace %s: %w", o.Keyspace, err)
	}
	return nil
}

type migrator struct {
	session    *gocql.Session
	options    Options
	migrations []migration
}

func (m *migrator) run(ctx context.Context) error {
	srv, err := Detect(ctx, m.session)
	if err != nil {
		return err
	}
	clause, err := m.options.Tablets.clause(srv)
	if err != nil {
		return err
	}
	p, err := m.options.parameters(clause)
	if err != nil {
		return err
	}
	ready, err := m.canLock(ctx)
	if err != nil {
		return err
	}
	if ready {
		// The usual case at the start of an instance: no pending migration, so no lock
		// is needed.
		if pending, err := m.pending(ctx); err != nil || len(pending) == 0 {
			return err
		}
	} else {
		for _, mig := range m.migrations[:bootstrap] {
			if err := m.apply(ctx, mig, p); err != nil {
				return err
			}
		}
	}
	return m.withLock(ctx, func(ctx context.Context) error {
		pending, err := m.pending(ctx)
		if err != nil {
			return err
		}
		for _, mig := range pending {
			if err := m.step(ctx, mig, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// step applies and records mig, or records it if it is a declaration.
func (m *migrator) step(ctx context.Context, mig migration, p parameters) error {
	log := m.options.Logger.With("keyspace", m.options.Keyspace, "component", mig.component)
	if mig.version == declared {
		err := m.record(ctx, mig)
		if err == nil {
			log.Info("component added")
		}
		return err
	}
	start := time.Now()
	if err := m.apply(ctx, mig, p); err != nil {
		return err
	}
	if err := m.record(ctx, mig); err != nil {
		return err
	}
	log.Info("migration applied", "version", mig.version, "name", mig.name, "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// canLock reports whether the tables of the bootstrap migrations exist.
func (m *migrator) canLock(ctx context.Context) (bool, error) {
	tables, err := tables(ctx, m.session, m.options.Keyspace)
	return tables["schema_migrations"] && tables["schema_locks"], err
}

func tables(ctx context.Context, s *gocql.Session, keyspace string) (out map[string]bool, err error) {
	err = cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
		out = map[string]bool{}
		iter := s.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", keyspace).
			WithContext(ctx).Consistency(gocql.One).Iter()
		for name := ""; iter.Scan(&name); {
			out[name] = true
		}
		return iter.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return out, nil
}

// pending returns the unrecorded parts of the components that the keyspace is to have: their
// declarations, then their migrations. It returns a *ChecksumError for a changed migration.
func (m *migrator) pending(ctx context.Context) ([]migration, error) {
	rec, err := readRecorded(ctx, m.session, m.options.Keyspace)
	if err != nil {
		return nil, err
	}
	wanted := rec.with(m.options.Components)
	var out []migration
	// Outbox is last: a keyspace without it has no valid choice of components yet, and
	// processes that start during the first migrations wait instead of missing a component.
	for _, c := range slices.Backward(wanted) {
		if !slices.Contains(rec.components, c) {
			out = append(out, c.declaration())
		}
	}
	var changed []error
	for _, mig := range m.migrations {
		a, ok := rec.applied[mig.version]
		switch {
		case !ok && !slices.Contains(wanted, mig.component):
		case !ok:
			out = append(out, mig)
		case a.Checksum != mig.checksum():
			changed = append(changed, &ChecksumError{Version: mig.version, Name: mig.name, Recorded: a.Checksum, Embedded: mig.checksum()})
		}
	}
	if len(out) > 0 {
		changed = append(changed, m.options.checkKeys(wanted))
	}
	return out, errors.Join(changed...)
}

// apply executes the statements of mig and waits until all nodes agree.
func (m *migrator) apply(ctx context.Context, mig migration, p parameters) error {
	text, err := mig.render(p)
	if err != nil {
		return err
	}
	for _, stmt := range Statements(text) {
		if err := cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error { return m.execute(ctx, stmt) }); err != nil {
			return fmt.Errorf("migration %03d_%s: %q: %w", mig.version, mig.name, stmt, err)
		}
	}
	if err := m.agree(ctx); err != nil {
		return fmt.Errorf("migration %03d_%s: %w", mig.version, mig.name, err)
	}
	return nil
}

// statementTimeout is the timeout of a statement that changes the schema. A node may wait
// long for the cluster's guard of the schema, and for the tablets of a new table.
const statementTimeout = time.Minute

// execute executes a statement of a migration once. It does nothing for a column that exists:
// ScyllaDB has no ADD IF NOT EXISTS, and a migration may be repeated.
func (m *migrator) execute(ctx context.Context, stmt string) error {
	there, err := m.hasColumn(ctx, stmt)
	if err != nil || there {
		return err
	}
	err = m.session.Query(stmt).WithContext(ctx).SetRequestTimeout(statementTimeout).Exec()
	if isInvalid(err) && addColumn.MatchString(stmt) {
		// An earlier attempt without an answer, or another instance, may have added the
		// column since, which the node that was read did not know.
		if err := m.agree(ctx); err != nil {
			return err
		}
		if there, lookErr := m.hasColumn(ctx, stmt); lookErr != nil || there {
			return lookErr
		}
	}
	return err
}

// agree waits until all nodes that are up have the same schema.
func (m *migrator) agree(ctx context.Context) error {
	if err := cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error { return m.session.AwaitSchemaAgreement(ctx) }); err != nil {
		return fmt.Errorf("wait for schema agreement: %w", err)
	}
	return nil
}

// addColumn is a statement that adds one column to a table.
var addColumn = regexp.MustCompile(`(?i)^ALTER\s+TABLE\s+(\w+)\.(\w+)\s+ADD\s+(\w+)\s+[\w<>, ]+$`)

// hasColumn reports whether stmt adds an existing column.
func (m *migrator) hasColumn(ctx context.Context, stmt string) (bool, error) {
	parts := addColumn.FindStringSubmatch(strings.TrimSpace(stmt))
	if parts == nil {
		return false, nil
	}
	var name string
	err := m.session.Query("SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ? AND column_name = ?",
		parts[1], parts[2], parts[3]).WithContext(ctx).Consistency(gocql.Quorum).Scan(&name)
	if errors.Is(err, gocql.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// record writes that mig was applied, unless someone did while the lock was
// lost without our knowing.
func (m *migrator) record(ctx context.Context, mig migration) error {
	stmt := "INSERT INTO " + m.options.Keyspace + ".schema_migrations (component, version, name, checksum, applied_at, applied_by)" +
		" VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS"
	var changed error
	err := cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
		row := map[string]any{}
		applied, err := m.session.Query(stmt, mig.component, mig.version, mig.name, mig.checksum(), time.Now(), m.options.Owner).
			WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCAS(row)
		if sum, _ := row["checksum"].(string); err == nil && !applied && sum != mig.checksum() {
			changed = &ChecksumError{Version: mig.version, Name: mig.name, Recorded: sum, Embedded: mig.checksum()}
		}
		return err
	})
	if err = cmp.Or(err, changed); err != nil {
		return fmt.Errorf("record migration %03d_%s: %w", mig.version, mig.name, err)
	}
	return nil
}
