package schema

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestStatements(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []string
	}{
		{"", nil},
		{" ; ;\n", nil},
		{"a;b", []string{"a", "b"}},
		{"a\n  b\t; -- c;\n", []string{"a b"}},
		{"a -- x\nb", []string{"a b"}},
		{"a // x\nb /* ; */ c;", []string{"a b c"}},
		{"a'; -- ' b", []string{"a'; -- ' b"}},
		{"a 'it''s;  two'", []string{"a 'it''s;  two'"}},
		{`a "x;y"`, []string{`a "x;y"`}},
		{"a $$ ; -- $$;b", []string{"a $$ ; -- $$", "b"}},
		{"a 'open;", []string{"a 'open;"}},
		{"/* open", nil},
		{"-- only", nil},
	}
	for _, tt := range tests {
		if got := Statements(tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("Statements(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestChecksum_IgnoresCommentsAndParameters(t *testing.T) {
	t.Parallel()
	base := migration{text: "CREATE TABLE {{.Keyspace}}.t (a int PRIMARY KEY);"}
	same := migration{text: "-- why\nCREATE  TABLE {{.Keyspace}}.t\n (a int PRIMARY KEY) ;"}
	other := migration{text: "CREATE TABLE {{.Keyspace}}.t (a text PRIMARY KEY);"}
	if base.checksum() != same.checksum() {
		t.Error("a comment and white space change the checksum")
	}
	if base.checksum() == other.checksum() {
		t.Error("another statement has the same checksum")
	}
	if quoted := (migration{text: "a 'x  y'"}); quoted.checksum() == (migration{text: "a 'x y'"}).checksum() {
		t.Error("white space in quotes does not change the checksum")
	}
}

func TestReplicationClause(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1":                    "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}",
		" 3 ":                  "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}",
		"datacenter1:3":        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
		"eu-west:3, us_east:2": "{'class': 'NetworkTopologyStrategy', 'eu-west': 3, 'us_east': 2}",
	} {
		if got, err := replicationClause(in); err != nil || got != want {
			t.Errorf("replicationClause(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "-1", "x", "dc:", ":3", "dc:x", "1,2", "dc:1,2", "dc:1,dc:2", "d'c:1", "101"} {
		if got, err := replicationClause(in); err == nil {
			t.Errorf("replicationClause(%q) = %q, want an error", in, got)
		}
	}
}

func TestTabletsClause(t *testing.T) {
	t.Parallel()
	v51, v62, v2025 := Server{}, Server{Tablets: true}, Server{Tablets: true, TabletsCDC: true}
	tests := []struct {
		mode   TabletsMode
		server Server
		want   string
		ok     bool
	}{
		{TabletsAuto, v51, "", true},
		{TabletsAuto, v62, "{'enabled': false}", true},
		{TabletsAuto, v2025, "", true},
		{TabletsOff, v51, "", true},
		{TabletsOff, v62, "{'enabled': false}", true},
		{TabletsOff, v2025, "{'enabled': false}", true},
		{TabletsOn, v51, "", false},
		{TabletsOn, v62, "", false},
		{TabletsOn, v2025, "{'enabled': true}", true},
	}
	for _, tt := range tests {
		if got, err := tt.mode.clause(tt.server); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s on %+v: clause() = %q, %v, want %q", tt.mode, tt.server, got, err, tt.want)
		}
	}
}

func TestOptions_ValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	if err := (Options{}).withDefaults().validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Options{
		Keyspace: "Bad", Replication: "x", Tablets: "maybe", CDCTTL: time.Second, RowTTL: -1, IdempotencyTTL: 1, LockTTL: 1, LockWait: -1,
	}.withDefaults().validate()
	for _, want := range []string{"keyspace", "replication", "tablets mode", "CDC TTL", "row TTL -1ns: must be from", "idempotency TTL", "lock TTL", "lock wait"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("validate() = %v, want %q in it", err, want)
		}
	}
	if err := (Options{CDCTTL: 2 * time.Hour, RowTTL: time.Hour}).withDefaults().validate(); err == nil {
		t.Error("rows that expire before their log are accepted")
	}
}

func TestLoad_RefusesGaps(t *testing.T) {
	t.Parallel()
	if _, err := load(files); err != nil {
		t.Errorf("load(files) = %v", err)
	}
	for _, names := range [][]string{{"cql/core/002_a.cql"}, {"cql/core/001_a.cql", "cql/orders/003_b.cql"}, {"cql/core/001.cql"}, {"cql/core/001_a.cql", "cql/core/01_b.cql"}, {"cql/cores/001_a.cql"}} {
		fsys := fstest.MapFS{}
		for _, n := range names {
			fsys[n] = &fstest.MapFile{Data: []byte("x;")}
		}
		if _, err := load(fsys); err == nil {
			t.Errorf("load(%q) = nil, want an error", names)
		}
	}
}

func TestMigration_Render(t *testing.T) {
	t.Parallel()
	p := parameters{Keyspace: "shop", Replication: "{'class': 'X'}", TabletsClause: "{'enabled': false}", CDCTTLSeconds: 1, RowTTLSeconds: 2, IdempotencyTTLSeconds: 3, RowWindowMinutes: 4}
	none := p
	none.TabletsClause = ""
	for _, tt := range []struct {
		text string
		p    parameters
		want string // or the error
	}{
		{"{{.Keyspace}} {{.Replication}} {{.CDCTTLSeconds}} {{.RowTTLSeconds}} {{.IdempotencyTTLSeconds}} {{.RowWindowMinutes}} {{.Keyspace}}", p, "shop {'class': 'X'} 1 2 3 4 shop"},
		{"a{{if .TabletsClause}}\n b = {{.TabletsClause}}{{end}}; c{{if .TabletsClause}} d{{end}}", p, "a\n b = {'enabled': false}; c d"},
		{"a{{if .TabletsClause}}\n b = {{.TabletsClause}}{{end}}; c{{if .TabletsClause}} d{{end}}", none, "a; c"},
		{"a {{.Keyspace}}.{{.Table}}", p, "migration 007_x: unknown parameter {{.Table}}"},
		{"a {{if .Keyspace}}b{{end}}", p, "migration 007_x: unknown parameter {{if .Keyspace}}"},
		{"a {{if .TabletsClause}}b", none, "migration 007_x: unknown parameter {{if .TabletsClause}}"},
		{"a {{.Keyspace", p, "migration 007_x: unknown parameter {{.Keyspace}}"},
	} {
		got, err := migration{version: 7, name: "x", text: tt.text}.render(tt.p)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("render(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// setProperties matches a statement that sets properties of a table.
var setProperties = regexp.MustCompile(`^ALTER TABLE \S+ WITH `)

// Crash safety rests on every statement being harmless when repeated.
func TestMigrations_AreIdempotent(t *testing.T) {
	t.Parallel()
	migrations, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Options{}.withDefaults().parameters("{'enabled': false}")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range migrations {
		text, err := m.render(p)
		stmts := Statements(text)
		if err != nil || len(stmts) == 0 {
			t.Errorf("render %s: %d statements, %v", m.name, len(stmts), err)
		}
		for _, s := range stmts {
			// A column is added only where it does not exist.
			if !strings.Contains(s, " IF NOT EXISTS ") && addColumn.FindString(s) == "" && !setProperties.MatchString(s) {
				t.Errorf("%s: %q is not idempotent", m.name, s)
			}
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"default": {},
		"shop":    {Keyspace: "shop", Components: Components(), Replication: "dc1:3,dc2:2", Tablets: TabletsOff, CDCTTL: time.Hour, RowTTL: 4 * time.Hour, IdempotencyTTL: 3 * time.Hour},
	} {
		var b strings.Builder
		if err := Print(&b, o); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "print_"+name+".cql")
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("Print(%s) differs from %s; -update rewrites it:\n%s", name, golden, b.String())
		}
	}
	if err := Print(&strings.Builder{}, Options{Replication: "x"}); err == nil {
		t.Error("Print() with a bad replication = nil, want an error")
	}
}
