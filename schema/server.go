package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// ErrNotScyllaDB says that the server is another one that speaks CQL, such as
// Apache Cassandra, which has no CDC log tables.
var ErrNotScyllaDB = errors.New("the server is not ScyllaDB: it has no CDC log tables")

// Server is what a server says it can do.
type Server struct {
	// Version is the release, such as 2025.4.1; empty if it does not tell.
	Version string `json:"version"`
	// Tablets: keyspaces may have tablets, and CREATE KEYSPACE knows the clause (6.0 on).
	Tablets bool `json:"tablets"`
	// TabletsCDC: tables with CDC may live on tablets (2025.4 on).
	TabletsCDC bool `json:"tablets_cdc"`
}

// Detect asks the server behind s what it can do. It looks at what the server's
// own tables offer rather than at version numbers, so that a cluster in the
// middle of an upgrade and other builds are judged rightly too.
func Detect(ctx context.Context, s *gocql.Session) (Server, error) {
	var srv Server
	iter := s.Query("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?", "system").WithContext(ctx).Iter()
	for _, c := range iter.Columns() {
		srv.Tablets = srv.Tablets || c.Name == "initial_tablets"
	}
	if err := iter.Close(); isInvalid(err) {
		return srv, ErrNotScyllaDB
	} else if err != nil {
		return srv, fmt.Errorf("ask the server about tablets: %w", err)
	}

	// The view of per-table CDC generations came with CDC on tablets.
	err := s.Query("SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?", "system", "local").
		WithContext(ctx).Iter().Close()
	switch {
	case err == nil:
		srv.TabletsCDC = srv.Tablets
	case !isInvalid(err):
		return srv, fmt.Errorf("ask the server about CDC on tablets: %w", err)
	}

	err = s.Query("SELECT version FROM system.versions WHERE key = 'local'").WithContext(ctx).Scan(&srv.Version)
	if err != nil && !isInvalid(err) && !errors.Is(err, gocql.ErrNotFound) {
		return srv, fmt.Errorf("ask the server for its version: %w", err)
	}
	return srv, nil
}

// isInvalid tells whether the server refused a statement as invalid, as it does
// for a table it does not have.
func isInvalid(err error) bool { return cqlcode.Of(err) == gocql.ErrCodeInvalid }

// clause returns the value of the tablets clause of CREATE KEYSPACE, empty for
// none, or an error if srv cannot do what m asks for.
func (m TabletsMode) clause(srv Server) (string, error) {
	switch {
	case m == TabletsOn && !srv.Tablets:
		return "", errors.New("tablets mode \"tablets\": the server has none (ScyllaDB 6.0 on); use auto or vnodes")
	case m == TabletsOn && !srv.TabletsCDC:
		return "", errors.New("tablets mode \"tablets\": the server has no CDC on tablets (ScyllaDB 2025.4 on); use auto or vnodes")
	case m == TabletsOn:
		return "{'enabled': true}", nil
	case !srv.Tablets:
		return "", nil
	case m == TabletsOff || !srv.TabletsCDC:
		return "{'enabled': false}", nil
	default:
		return "", nil
	}
}
