package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gocql/gocql"
)

// table is a table of the database, as its schema describes it.
type table struct {
	keyspace, name string
	columns        map[string]column
}

// column is a column of system_schema.columns.
type column struct {
	typ, kind string
	position  int
}

const (
	kindKey        = "partition_key"
	kindClustering = "clustering"
	kindStatic     = "static"
	kindRegular    = "regular"
)

// describe reads the schema of a table. An empty keyspace means that of the
// session.
func describe(ctx context.Context, session *gocql.Session, config, keyspace, name string) (*table, error) {
	if session == nil {
		return nil, errors.New("inbox: the session is nil: pass an open gocql session")
	}
	if name == "" {
		return nil, fmt.Errorf("inbox: %s.Table is empty: name the table", config)
	}
	const columns = "SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
	query := session.Query(columns)
	t := &table{keyspace: cmp.Or(keyspace, query.Keyspace()), name: name, columns: make(map[string]column)}
	if t.keyspace == "" {
		return nil, fmt.Errorf("inbox: %s.Keyspace is empty, and the session has no keyspace: name the keyspace of %s", config, name)
	}
	iter := query.Bind(t.keyspace, name).WithContext(ctx).Idempotent(true).Iter()
	var c column
	for n := ""; iter.Scan(&n, &c.typ, &c.kind, &c.position); {
		t.columns[n] = c
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("inbox: read the schema of %s: %w", t, err)
	}
	return t, nil
}

// of returns the names of the columns of one kind, in the order of the key.
func (t *table) of(kind string) []string {
	var names []string
	for n, c := range t.columns {
		if c.kind == kind {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return t.columns[a].position - t.columns[b].position })
	return names
}

// cql returns the name of the table in a statement.
func (t *table) cql() string { return quote(t.keyspace) + "." + quote(t.name) }

// String returns the name of the table for people.
func (t *table) String() string { return plain(t.keyspace) + "." + plain(t.name) }

// quote returns a name in CQL. Quoted names may be reserved words.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// simple is a name that needs no quotes, unless it is a reserved word.
var simple = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// plain returns a name as a person writes it.
func plain(name string) string {
	if simple.MatchString(name) {
		return name
	}
	return quote(name)
}
