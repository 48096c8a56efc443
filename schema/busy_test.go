package schema

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// tablets is a server whose tables with CDC have tablets.
var tablets = scyllafake.Config{}

// faster executes the ALTER of a migration, as an earlier attempt without an answer, after the
// migrator has found that the column does not exist and before it adds it.
type faster struct {
	t     *testing.T
	other *gocql.Session
	adds  map[string]string // statement by keyspace, table and column
	hits  atomic.Int64
}

func (f *faster) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	if !strings.Contains(q.Statement, "FROM system_schema.columns") || q.Rows > 0 || len(q.Values) != 3 {
		return
	}
	stmt, ok := f.adds[q.Values[0].(string)+"."+q.Values[1].(string)+"."+q.Values[2].(string)]
	if !ok {
		return
	}
	f.hits.Add(1)
	if err := f.other.Query(stmt).WithContext(ctx).Exec(); err != nil {
		f.t.Error(err)
	}
}

// A statement that adds a column is refused because an earlier attempt, whose response was lost,
// added it in the meantime. The migration continues, and can be repeated.
func TestMigrate_ColumnWasAddedMeanwhile(t *testing.T) {
	t.Parallel()
	migrations, err := load(files)
	if err != nil {
		t.Fatal(err)
	}
	add := "ALTER TABLE outbox.outbox_messages ADD "
	columns := migration{component: Outbox, version: len(migrations) + 1, name: "columns", text: add + "region text;" + add + "labels frozen<map<text, text>>;"}
	srv, s := start(t, tablets)
	f := &faster{t: t, other: s, adds: map[string]string{}}
	for _, stmt := range Statements(columns.text) {
		parts := addColumn.FindStringSubmatch(stmt)
		f.adds[strings.Join(parts[1:4], ".")] = stmt
	}
	c := gocql.NewCluster("127.0.0.1")
	c.Dialer, c.ProtoVersion, c.Timeout, c.ConnectTimeout, c.QueryObserver = srv, 4, time.Minute, time.Minute, f
	slow, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	m := migrator{session: slow, options: Options{}.withDefaults(), migrations: append(migrations, columns)}
	for _, step := range []string{"added meanwhile", "applied and not recorded"} {
		if err := m.run(t.Context()); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got, want := states(t, s, Options{}), fmt.Sprintf("%s, %d unknown", allApplied, columns.version); got != want {
			t.Errorf("%s: states %s, want %s", step, got, want)
		}
		mustExec(t, s, "DELETE FROM outbox.schema_migrations WHERE component = ? AND version = ?", Outbox, columns.version)
	}
	if n := f.hits.Load(); n != 2 {
		t.Errorf("%d columns were added meanwhile, want 2", n)
	}
}

// A node fails reads of the virtual tables of CDC while a table with tablets is dropped, in any
// keyspace. Neither Migrate nor Status does.
func TestMigrate_WhileTablesAreDropped(t *testing.T) {
	for name, failure := range map[string]*faults.Failure{
		"server error": faults.Refuse(cqlerr.Server, "Can't find a column family with UUID 5a0b1c2d"),
		"timeout":      faults.ReadTimeout(0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, s := start(t, tablets)
			id := srv.Faults().MustAdd(faults.Rule{
				Match: faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Keyspace: "system", Table: "cdc_timestamps"}, Count: 2,
				Effect: faults.Effect{Failure: failure},
			})
			mustMigrate(t, s, Options{})
			if n := srv.Faults().Hits(id); n != 2 {
				t.Fatalf("%d reads failed, want 2", n)
			}
			srv.Faults().MustAdd(faults.Rule{
				Match: faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Keyspace: "system", Table: "cdc_timestamps"}, Count: 2,
				Effect: faults.Effect{Failure: failure},
			})
			r, err := Status(t.Context(), s, Options{})
			if err != nil || !r.UpToDate() || !r.Server.TabletsCDC {
				t.Errorf("Status() = %+v, %v", r, err)
			}
		})
	}
}
