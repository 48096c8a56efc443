package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

func mustMigrate(t *testing.T, s *gocql.Session, o Options) {
	t.Helper()
	if err := Migrate(t.Context(), s, o); err != nil {
		t.Fatalf("Migrate() = %v", err)
	}
}

func mustExec(t *testing.T, s *gocql.Session, stmt string, args ...any) {
	t.Helper()
	if err := s.Query(stmt, args...).Exec(); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
}

// Rows of the outbox expire by windows: ScyllaDB refuses more than fifty.
func TestMigrate_OutboxHasTimeWindows(t *testing.T) {
	t.Parallel()
	for ttl, minutes := range map[time.Duration]string{0: "840", time.Minute: "1", 90 * 24 * time.Hour: "10800"} {
		_, s := start(t, scyllafake.Config{})
		o := Options{RowTTL: ttl}
		if ttl > 0 {
			o.CDCTTL, o.IdempotencyTTL = time.Minute, time.Minute
		}
		mustMigrate(t, s, o)
		var compaction map[string]string
		if err := s.Query("SELECT compaction FROM system_schema.tables WHERE keyspace_name = 'outbox' AND table_name = 'outbox_messages'").Scan(&compaction); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"class": "TimeWindowCompactionStrategy", "compaction_window_unit": "MINUTES", "compaction_window_size": minutes}
		if !maps.Equal(compaction, want) {
			t.Errorf("TTL %s: compaction = %v, want %v", ttl, compaction, want)
		}
	}
}

// Idempotency-Keys do not outlive the rows that a retry must find.
func TestMigrate_RefusesRowsBelowKeys(t *testing.T) {
	t.Parallel()
	o := Options{RowTTL: time.Minute, CDCTTL: time.Minute}
	for name, tt := range map[string]struct {
		components []Component
		refused    bool
	}{"default": {nil, true}, "schedule": {[]Component{Schedule}, true}, "orders": {[]Component{Orders}, true}, "outbox": {[]Component{Outbox}, false}} {
		_, s := start(t, scyllafake.Config{})
		o.Components = tt.components
		err := Migrate(t.Context(), s, o)
		printed := Print(io.Discard, o)
		for _, err := range []error{err, printed} {
			if refused := err != nil && strings.Contains(err.Error(), "row TTL 1m0s: must not be below the 168h0m0s of Idempotency-Keys"); refused != tt.refused || (err != nil) != tt.refused {
				t.Errorf("%s: %v, want an error: %v", name, err, tt.refused)
			}
		}
	}
}

// states lists "001 applied" and so on.
func states(t *testing.T, s *gocql.Session, o Options) string {
	t.Helper()
	r, err := Status(t.Context(), s, o)
	if err != nil {
		t.Fatalf("Status() = %v", err)
	}
	var out []string
	for _, m := range r.Migrations {
		out = append(out, fmt.Sprintf("%d %s", m.Version, m.State))
	}
	return strings.Join(out, ", ")
}

// everyone returns the embedded migrations with their state, which is absent for migrations that
// are no default; the last default with another state, unless that is empty.
func everyone(state, last string) string {
	migrations, err := load(files)
	if err != nil {
		panic(err)
	}
	var out []string
	for _, m := range migrations {
		of := state
		switch {
		case !slices.Contains(byDefault(), m.component):
			of = string(StateAbsent)
		case last != "" && m.version == newest().version:
			of = last
		}
		out = append(out, fmt.Sprintf("%d %s", m.version, of))
	}
	return strings.Join(out, ", ")
}

var (
	allPending = everyone("pending", "")
	allApplied = everyone("applied", "")
)

// lastVersion is the number of the newest default migration, lastComponent its component.
var (
	lastVersion   = newest().version
	lastComponent = newest().component
)

func newest() migration {
	migrations, err := load(files)
	if err != nil {
		panic(err)
	}
	migrations = slices.DeleteFunc(migrations, func(m migration) bool { return !slices.Contains(byDefault(), m.component) })
	return migrations[len(migrations)-1]
}

func TestMigrate_FromNothingAndAgain(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]scyllafake.Config{
		"5.1":                {Version: "5.1"},
		"2025.4":             {Version: "2025.4"},
		"2025.4 with vnodes": {Version: "2025.4", Vnodes: true},
		"2026.1":             {Version: "2026.1"},
		"2026.1 with vnodes": {Version: "2026.1", Vnodes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := start(t, cfg)
			if got := states(t, s, Options{}); got != allPending {
				t.Errorf("before: %s, want %s", got, allPending)
			}
			for range 2 {
				mustMigrate(t, s, Options{Owner: "me"})
				if got := states(t, s, Options{}); got != allApplied {
					t.Errorf("after: %s, want %s", got, allApplied)
				}
			}
			var ttl int
			if err := s.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = 'outbox' AND table_name = 'outbox_messages'").Scan(&ttl); err != nil || ttl != 7*24*3600 {
				t.Errorf("row ttl = %d, %v, want 7 days", ttl, err)
			}
			var cdc map[string]string
			if err := s.Query("SELECT cdc FROM system_schema.scylla_tables WHERE keyspace_name = 'outbox' AND table_name = 'outbox_messages'").Scan(&cdc); err == nil && cdc != nil && cdc["ttl"] != "259200" {
				t.Errorf("cdc = %v, want a ttl of 3 days", cdc)
			}
			exist, err := tables(t.Context(), s, "outbox")
			if err != nil || !exist["outbox_messages_scylla_cdc_log"] || !exist["relay_checkpoints"] || !exist["request_keys"] || exist["orders"] {
				t.Errorf("tables = %v, %v", exist, err)
			}
			r, err := Status(t.Context(), s, Options{})
			if err != nil || r.LockedBy != "" || r.Migrations[0].Applied.By != "me" || r.Migrations[0].Applied.At.IsZero() {
				t.Errorf("Status() = %+v, %v, want no lock and all applied by me", r, err)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]Server{
		"5.1":    {},
		"2025.4": {Tablets: true, TabletsCDC: true},
		"2026.1": {Tablets: true, TabletsCDC: true},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			_, s := start(t, scyllafake.Config{Version: version})
			got, err := Detect(t.Context(), s)
			if err != nil || got.Tablets != want.Tablets || got.TabletsCDC != want.TabletsCDC || !strings.HasPrefix(got.Version, version) {
				t.Errorf("Detect() = %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestMigrate_TabletsMode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		version string
		byself  bool // tablets are the server's default
		mode    TabletsMode
		want    bool // the keyspace has tablets
		fails   string
	}{
		{"5.1", false, TabletsAuto, false, ""},
		{"5.1", false, TabletsOff, false, ""},
		{"5.1", false, TabletsOn, false, "tablets"},
		{"2025.4", true, TabletsAuto, true, ""},
		{"2025.4", false, TabletsAuto, false, ""},
		{"2025.4", true, TabletsOff, false, ""},
		{"2025.4", false, TabletsOn, true, ""},
		{"2026.1", true, TabletsAuto, true, ""},
		{"2026.1", false, TabletsAuto, false, ""},
		{"2026.1", true, TabletsOff, false, ""},
		{"2026.1", false, TabletsOn, true, ""},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %v %s", tt.version, tt.byself, tt.mode), func(t *testing.T) {
			t.Parallel()
			_, s := start(t, scyllafake.Config{Version: tt.version, Vnodes: !tt.byself})
			err := Migrate(t.Context(), s, Options{Tablets: tt.mode})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("Migrate() = %v, want %q in it", err, tt.fails)
				}
				if got := states(t, s, Options{}); got != allPending {
					t.Errorf("after the error: %s", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// Only a keyspace with tablets has a row here.
			n := s.Query("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'outbox'").Iter().NumRows()
			if (n == 1) != tt.want {
				t.Errorf("keyspace has tablets: %v, want %v", n == 1, tt.want)
			}
		})
	}
}

func TestMigrate_ManyInstancesAtOnce(t *testing.T) {
	t.Parallel()
	srv, s := start(t, scyllafake.Config{})
	const instances = 8
	var wg sync.WaitGroup
	for i := range instances {
		wg.Go(func() {
			own := connect(t, srv)
			defer own.Close()
			if err := Migrate(t.Context(), own, Options{Owner: fmt.Sprint("instance ", i)}); err != nil {
				t.Errorf("instance %d: Migrate() = %v", i, err)
			}
			if got := states(t, own, Options{}); got != allApplied {
				t.Errorf("instance %d failed: %s", i, got)
			}
		})
	}
	wg.Wait()
	r, err := Status(t.Context(), s, Options{})
	if err != nil || r.LockedBy != "" {
		t.Errorf("Status() = %+v, %v, want the lock free", r, err)
	}
	for _, m := range r.Migrations[1:lastVersion] {
		if m.Applied.By != r.Migrations[0].Applied.By {
			t.Errorf("migration %d was applied by %s, the first by %s", m.Version, m.Applied.By, r.Migrations[0].Applied.By)
		}
	}
}

// After a crash there is a lock without an owner and a prefix of the work: of
// the migrations, or of their records.
func TestMigrate_AfterACrashHalfWay(t *testing.T) {
	t.Parallel()
	migrations, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{}.withDefaults()
	p, err := o.parameters("")
	if err != nil {
		t.Fatal(err)
	}
	dead := o
	dead.LockTTL = 2 * time.Second
	for _, tt := range []struct{ applied, recorded int }{{0, 0}, {1, 0}, {1, 1}, {2, 0}, {4, 3}, {5, 5}, {lastVersion, lastVersion}, {lastVersion, 4}} {
		t.Run(fmt.Sprintf("%d applied %d recorded", tt.applied, tt.recorded), func(t *testing.T) {
			t.Parallel()
			_, s := start(t, scyllafake.Config{})
			m := migrator{session: s, options: o, migrations: migrations}
			for _, mig := range migrations[:tt.applied] {
				if err := m.apply(t.Context(), mig, p); err != nil {
					t.Fatal(err)
				}
			}
			if tt.applied < len(migrations) { // and a part of the next one
				part := migrations[tt.applied]
				part.text = Statements(part.text)[0]
				if err := m.apply(t.Context(), part, p); err != nil {
					t.Fatal(err)
				}
			}
			locked := tt.applied >= bootstrap
			if locked {
				for _, mig := range migrations[:tt.recorded] {
					if err := m.record(t.Context(), mig); err != nil {
						t.Fatal(err)
					}
				}
			}
			begun := time.Now()
			if locked {
				if mine, err := (&migrator{session: s, options: dead}).newLock().Take(t.Context()); err != nil || !mine {
					t.Fatal(mine, err)
				}
			}
			mustMigrate(t, s, o)
			if got := states(t, s, o); got != allApplied {
				t.Errorf("after the second run: %s", got)
			}
			// TTLs count in whole seconds.
			if took := time.Since(begun); locked && tt.recorded < lastVersion && took < dead.LockTTL-time.Second {
				t.Errorf("took a lock of %s after %s", dead.LockTTL, took)
			}
		})
	}
}

func TestMigrate_RefusesChangedMigration(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	mustMigrate(t, s, Options{})
	mustExec(t, s, "UPDATE outbox.schema_migrations SET checksum = 'other' WHERE component = ? AND version = 4", DeadLetters)
	mustExec(t, s, "DELETE FROM outbox.schema_migrations WHERE component = ? AND version = ?", lastComponent, lastVersion)
	err := Migrate(t.Context(), s, Options{})
	var changed *ChecksumError
	if !errors.As(err, &changed) || changed.Version != 4 || changed.Recorded != "other" || changed.Embedded == "" {
		t.Errorf("Migrate() = %v, want a *ChecksumError about 4", err)
	}
	if got, want := states(t, s, Options{}), strings.Replace(everyone("applied", "pending"), "4 applied", "4 changed", 1); got != want {
		t.Errorf("states: %s, want %s", got, want)
	}
}

func TestMigrate_LeavesNewerOnesAlone(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	mustMigrate(t, s, Options{})
	mustExec(t, s, "INSERT INTO outbox.schema_migrations (component, version, name, checksum) VALUES (?, 99, 'later', 'x')", Core)
	mustMigrate(t, s, Options{})
	if got, want := states(t, s, Options{}), allApplied+", 99 unknown"; got != want {
		t.Errorf("states: %s, want %s", got, want)
	}
}

func TestMigrate_KeepsAnExistingKeyspace(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	mustExec(t, s, "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND durable_writes = false")
	mustMigrate(t, s, Options{Keyspace: "shop", Replication: "datacenter1:3"})
	var durable bool
	if err := s.Query("SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = 'shop'").Scan(&durable); err != nil || durable {
		t.Errorf("durable_writes = %v, %v, want the previous value", durable, err)
	}
}

// Conditional statements that time out, decided or not, in any place.
func TestMigrate_ThroughCASTimeouts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	for _, decided := range []bool{true, false} {
		for skip := range lastVersion + len(byDefault()) + 1 { // the lock, the declarations, the records, the release
			t.Run(fmt.Sprintf("decided=%v skip=%d", decided, skip), func(t *testing.T) {
				t.Parallel()
				srv, s := start(t, scyllafake.Config{})
				rule := faults.CASTimeout(decided)
				rule.Skip, rule.Count, rule.Effect.Delay = skip, 2, 20*time.Millisecond
				id := srv.Faults().MustAdd(rule)
				mustMigrate(t, s, Options{})
				if got := states(t, s, Options{}); got != allApplied {
					t.Errorf("states: %s", got)
				}
				if srv.Faults().Hits(id) == 0 {
					t.Error("no statement was hit")
				}
			})
		}
	}
}

func TestMigrate_NamesTheHolderOfTheLock(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	mustMigrate(t, s, Options{})
	mustExec(t, s, "DELETE FROM outbox.schema_migrations WHERE component = ? AND version = ?", lastComponent, lastVersion)
	mustExec(t, s, "INSERT INTO outbox.schema_locks (name, owner) VALUES (?, 'somebody')", lockName)
	err := Migrate(t.Context(), s, Options{LockWait: time.Second})
	if err == nil || !strings.Contains(err.Error(), "held by somebody for longer than 1s") {
		t.Errorf("Migrate() = %v, want the holder", err)
	}
	if r, err := Status(t.Context(), s, Options{}); err != nil || r.LockedBy != "somebody" {
		t.Errorf("Status() = %+v, %v, want it locked by somebody", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := Migrate(ctx, s, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Migrate() = %v, want the end of ctx", err)
	}
}

func TestLock_IsKeptWhileWorkLasts(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		_, s := start(t, scyllafake.Config{})
		o := Options{}.withDefaults()
		mustMigrate(t, s, o)
		m := migrator{session: s, options: o}
		err := m.withLock(t.Context(), func(ctx context.Context) error {
			if err := retry.Wait(ctx, 2*o.LockTTL); err != nil {
				return err
			}
			other := m
			other.options.LockWait = 0
			return other.withLock(ctx, func(context.Context) error { return errors.New("two held the lock") })
		})
		if err == nil || !strings.Contains(err.Error(), "held by "+o.Owner) {
			t.Errorf("a second lock after twice its TTL: %v, want a refusal", err)
		}
		if err := m.withLock(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("after release: withLock() = %v", err)
		}
	})
}

func TestLock_LossEndsTheWork(t *testing.T) {
	t.Parallel()
	lose := map[string]func(t *testing.T, srv *scyllafake.Server, s *gocql.Session){
		"taken by another": func(t *testing.T, _ *scyllafake.Server, s *gocql.Session) {
			mustExec(t, s, "UPDATE outbox.schema_locks SET owner = 'thief' WHERE name = ?", lockName)
		},
		"cannot be renewed": func(_ *testing.T, srv *scyllafake.Server, _ *gocql.Session) {
			srv.Faults().MustAdd(faults.Rule{
				Match:  faults.Match{Kinds: []engine.OpKind{engine.OpCAS}},
				Effect: faults.Effect{Failure: faults.Unavailable(0, 1)},
			})
		},
	}
	for name, f := range lose {
		t.Run(name, func(t *testing.T) {
			virtual.Run(t, func(t *testing.T) {
				srv, s := start(t, scyllafake.Config{})
				o := Options{}.withDefaults()
				mustMigrate(t, s, o)
				m := migrator{session: s, options: o}
				begun := time.Now()
				err := m.withLock(t.Context(), func(ctx context.Context) error {
					f(t, srv, s)
					return retry.Wait(ctx, time.Hour)
				})
				if !errors.Is(err, ErrLockLost) {
					t.Errorf("withLock() = %v, want ErrLockLost", err)
				}
				if took := time.Since(begun); took >= o.LockTTL {
					t.Errorf("the work went on for %s with a lock of %s", took, o.LockTTL)
				}
			})
		})
	}
}
