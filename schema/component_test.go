package schema

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// statementTable is the table that a statement creates or changes.
var statementTable = regexp.MustCompile(`^(CREATE TABLE IF NOT EXISTS|ALTER TABLE) \{\{\.Keyspace\}\}\.(\w+) `)

// componentTables returns the tables of each component, in the order of their migrations. It fails the
// test if a table is created twice, or changed by another component.
func componentTables(t *testing.T) map[Component][]string {
	t.Helper()
	migrations, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	owner, out := map[string]Component{}, map[Component][]string{}
	for _, m := range migrations {
		for _, stmt := range Statements(m.text) {
			parts := statementTable.FindStringSubmatch(stmt)
			switch {
			case parts == nil && m.version == 1: // the keyspace
			case parts == nil:
				t.Errorf("%03d_%s: %q is of no table", m.version, m.name, stmt)
			case parts[1] == "ALTER TABLE" && owner[parts[2]] != m.component:
				t.Errorf("%03d_%s of %s changes %s of %s", m.version, m.name, m.component, parts[2], owner[parts[2]])
			case parts[1] != "ALTER TABLE" && owner[parts[2]] != "":
				t.Errorf("%03d_%s of %s creates %s of %s", m.version, m.name, m.component, parts[2], owner[parts[2]])
			case parts[1] != "ALTER TABLE":
				owner[parts[2]] = m.component
				out[m.component] = append(out[m.component], parts[2])
			}
		}
	}
	return out
}

// Every table of a complete keyspace belongs to one component.
func TestComponents_EachTableHasOne(t *testing.T) {
	t.Parallel()
	var want []string
	of := componentTables(t)
	for _, c := range Components() {
		if len(of[c]) == 0 {
			t.Errorf("component %s has no table", c)
		}
		want = append(want, of[c]...)
	}
	slices.Sort(want)
	_, s := start(t, scyllafake.Config{})
	mustMigrate(t, s, Options{Components: Components()})
	if got := createdTables(t, s, "outbox"); !slices.Equal(got, want) {
		t.Errorf("tables of a keyspace: %q, want those of the components: %q", got, want)
	}
}

func TestComponents_RequireWhatIsBefore(t *testing.T) {
	t.Parallel()
	all := Components()
	if keys := slices.Sorted(maps.Keys(requires)); len(keys) != len(all) {
		t.Errorf("requires has %q, Components() %q", keys, all)
	}
	for i, c := range all {
		got, err := withRequired([]Component{c})
		again, _ := withRequired(got)
		if err != nil || !slices.Contains(got, Outbox) || !slices.Equal(got, again) || !slices.Equal(got, slices.DeleteFunc(slices.Clone(all[:i+1]), func(x Component) bool { return !slices.Contains(got, x) })) {
			t.Errorf("withRequired(%s) = %q, %v, want outbox, all that they require, and nothing behind %s", c, got, err, c)
		}
	}
	var unknown *UnknownComponentError
	err := Migrate(t.Context(), nil, Options{Components: []Component{"letters"}})
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "use outbox,core,dead-letters,schedule,subscriptions,orders") {
		t.Errorf("Migrate() = %v, want the valid names", err)
	}
	if _, err := load(fstest.MapFS{"cql/letters/001_a.cql": {Data: []byte("x;")}}); !errors.As(err, &unknown) {
		t.Errorf("load() = %v, want the unknown component of a folder", err)
	}
}

// docs/own-tables.md lists the tables of each component.
func TestComponents_AreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/own-tables.md")
	if err != nil {
		t.Fatal(err)
	}
	of := componentTables(t)
	for _, c := range Components() {
		row := regexp.MustCompile("(?m)^\\| `" + string(c) + "` \\|(.*)\\|$").FindString(string(page))
		for _, table := range of[c] {
			if !strings.Contains(row, "`"+table+"`") {
				t.Errorf("docs/own-tables.md: the row of component %s has no table %s: %q", c, table, row)
			}
		}
		if n := strings.Count(row, "`")/2 - 1; n != len(of[c]) {
			t.Errorf("docs/own-tables.md: the row of component %s has %d tables, want %d", c, n, len(of[c]))
		}
	}
}

// A keyspace has the components that were chosen; a later migration completes these alone,
// until another is added.
func TestMigrate_Components(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	of := componentTables(t)
	var want []string
	check := func(step string, has ...Component) {
		t.Helper()
		want = want[:0]
		for _, c := range has {
			want = append(want, of[c]...)
		}
		slices.Sort(want)
		if got := createdTables(t, s, "shop"); !slices.Equal(got, want) {
			t.Errorf("%s: tables %q, want %q", step, got, want)
		}
		if got, err := ReadInstalled(t.Context(), s, "shop"); err != nil || !slices.Equal(got, has) {
			t.Errorf("%s: Installed() = %q, %v, want %q", step, got, err, has)
		}
		r, err := Status(t.Context(), s, Options{Keyspace: "shop"})
		if err != nil || !slices.Equal(r.Components, append([]Component{}, has...)) {
			t.Fatalf("%s: Status() has components %q, %v, want %q", step, r.Components, err, has)
		}
		for _, m := range r.Migrations {
			if st := map[bool]State{true: StateApplied, false: StateAbsent}[slices.Contains(has, m.Component)]; len(has) > 0 && m.State != st {
				t.Errorf("%s: %03d_%s of %s is %s, want %s", step, m.Version, m.Name, m.Component, m.State, st)
			}
		}
		if up := r.UpToDate(); up != (len(has) > 0) {
			t.Errorf("%s: UpToDate() = %v", step, up)
		}
	}
	check("before")
	mustMigrate(t, s, Options{Keyspace: "shop", Components: []Component{Outbox}})
	check("outbox", Outbox)
	mustMigrate(t, s, Options{Keyspace: "shop"})
	check("again", Outbox)
	if len(want) != 4 {
		t.Errorf("a service needs the tables %q, want four", want)
	}
	mustMigrate(t, s, Options{Keyspace: "shop", Components: []Component{Core}})
	check("core", Outbox, Core)
	mustMigrate(t, s, Options{Keyspace: "shop"})
	check("core again", Outbox, Core)
	plan, err := Status(t.Context(), s, Options{Keyspace: "shop", Components: []Component{Subscriptions}})
	if err != nil || plan.UpToDate() || plan.Migrations[5].State != StatePending || plan.Migrations[4].State != StateAbsent {
		t.Errorf("Status() of an addition = %+v, %v, want 006 pending and 005 absent", plan, err)
	}
	mustMigrate(t, s, Options{Keyspace: "shop", Components: []Component{Subscriptions}})
	check("added", Outbox, Core, DeadLetters, Subscriptions)
	mustExec(t, s, "DELETE FROM shop.schema_migrations WHERE component = ? AND version = ?", DeadLetters, 4)
	if r, err := Status(t.Context(), s, Options{Keyspace: "shop"}); err != nil || r.UpToDate() || r.Migrations[3].State != StatePending || r.Migrations[4].State != StateAbsent {
		t.Errorf("Status() = %+v, %v, want 004 pending", r, err)
	}
	mustMigrate(t, s, Options{Keyspace: "shop", Components: []Component{Core}})
	check("completed", Outbox, Core, DeadLetters, Subscriptions)
	mustMigrate(t, s, Options{Keyspace: "shop", Components: Components()})
	check("all", Components()...)
}

// A new keyspace has the tables of the example only if they are asked for by name.
func TestMigrate_OrdersByNameAlone(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	for _, step := range []struct{ add, want []Component }{{nil, byDefault()}, {nil, byDefault()}, {[]Component{Orders}, Components()}, {nil, Components()}} {
		mustMigrate(t, s, Options{Components: step.add})
		has, err := ReadInstalled(t.Context(), s, "outbox")
		if err != nil || !slices.Equal(has, step.want) || slices.Contains(createdTables(t, s, "outbox"), "orders") != slices.Contains(step.want, Orders) {
			t.Errorf("after %q: components %q, %v, want %q", step.add, has, err, step.want)
		}
	}
}

// A run that fails between its first declaration and its last migration leaves no keyspace
// that a run without a choice takes for a smaller one.
func TestMigrate_InterruptedChoice(t *testing.T) {
	t.Parallel()
	for _, chosen := range [][]Component{nil, {Outbox, Core, DeadLetters}} {
		for skip := range 1 + len(byDefault()) {
			t.Run(fmt.Sprintf("%q after %d", chosen, skip), func(t *testing.T) {
				t.Parallel()
				srv, s := start(t, scyllafake.Config{})
				o := Options{Components: chosen}
				id := srv.Faults().MustAdd(faults.Rule{ // the declarations and the first migrations
					Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Table: "schema_migrations"}, Skip: skip,
					Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Unauthorized, "refused")},
				})
				if err := Migrate(t.Context(), s, o); err == nil {
					t.Fatal("Migrate() = nil, want the fault")
				}
				if err := srv.Faults().Remove(id); err != nil {
					t.Fatal(err)
				}
				want := chosen
				if want == nil {
					want = byDefault()
				}
				has, err := ReadInstalled(t.Context(), s, "outbox")
				if err != nil || has != nil && !slices.Equal(has, want) {
					t.Errorf("Installed() = %q, %v, want %q or nothing", has, err, want)
				}
				if has != nil {
					o.Components = nil // the recorded choice
				}
				mustMigrate(t, s, o)
				if has, err := ReadInstalled(t.Context(), s, "outbox"); err != nil || !slices.Equal(has, want) {
					t.Errorf("after the second run: Installed() = %q, %v, want %q", has, err, want)
				}
			})
		}
	}
}

// Components are not known without schema_migrations: a process then relies on its tables.
func TestInstalled_Unknown(t *testing.T) {
	t.Parallel()
	_, s := start(t, scyllafake.Config{})
	for _, step := range []string{
		"", "CREATE KEYSPACE outbox WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		"CREATE TABLE outbox.schema_migrations (component text, version int, name text, checksum text, applied_at timestamp, applied_by text, PRIMARY KEY (component, version))",
		"INSERT INTO outbox.schema_migrations (component, version) VALUES ('dead-letters', 0)",
	} {
		if step != "" {
			mustExec(t, s, step)
		}
		if has, err := ReadInstalled(t.Context(), s, "outbox"); err != nil || has != nil {
			t.Errorf("after %q: Installed() = %q, %v, want none", step, has, err)
		}
	}
}
