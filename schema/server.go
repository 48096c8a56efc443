package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// ErrNotScyllaDB reports another server with CQL, such as Apache Cassandra,
// which has no CDC log tables.
var ErrNotScyllaDB = errors.New("the server is not ScyllaDB: it has no CDC log tables")

// Server describes the capabilities of a server.
type Server struct {
	// Version is the release, such as 2025.4.1; empty if unknown.
	Version string `json:"version"`
	// Tablets reports whether keyspaces can have tablets, and CREATE KEYSPACE the
	// clause (since 6.0).
	Tablets bool `json:"tablets"`
	// TabletsCDC: tables with CDC may live on tablets (2025.4 on).
	TabletsCDC bool `json:"tablets_cdc"`
}

// Detect returns the capabilities of the server behind s. It inspects system
// tables rather than version numbers, so that it is correct during an upgrade
// of the cluster and for other builds.
func Detect(ctx context.Context, s *gocql.Session) (srv Server, err error) {
	err = cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
		srv = Server{}
		iter := s.Query("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?", "system").WithContext(ctx).Iter()
		for _, c := range iter.Columns() {
			srv.Tablets = srv.Tablets || c.Name == "initial_tablets"
		}
		return iter.Close()
	})
	if isInvalid(err) {
		return srv, ErrNotScyllaDB
	} else if err != nil {
		return srv, fmt.Errorf("detect tablets: %w", err)
	}

	// The view of per-table CDC generations exists if tablets support CDC.
	err = cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
		return s.Query("SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?", "system", "local").
			WithContext(ctx).Iter().Close()
	})
	switch {
	case err == nil:
		srv.TabletsCDC = srv.Tablets
	case !isInvalid(err):
		return srv, fmt.Errorf("detect CDC on tablets: %w", err)
	}

	err = cqlcode.RetryTransient(ctx, cqlcode.SchemaChange, func() error {
		return s.Query("SELECT version FROM system.versions WHERE key = 'local'").WithContext(ctx).Scan(&srv.Version)
	})
	if err != nil && !isInvalid(err) && !errors.Is(err, gocql.ErrNotFound) {
		return srv, fmt.Errorf("detect the version: %w", err)
	}
	return srv, nil
}

// isInvalid reports whether the server rejected a statement as invalid, as it
// does for an unknown table.
func isInvalid(err error) bool { return cqlcode.Of(err) == gocql.ErrCodeInvalid }

// clause returns the value of the tablets clause of CREATE KEYSPACE, empty for
// none, or an error if srv does not support m.
func (m TabletsMode) clause(srv Server) (string, error) {
	switch {
	case m == TabletsOn && !srv.Tablets:
		return "", errors.New("tablets mode \"tablets\": the server does not support it (since ScyllaDB 6.0); use auto or vnodes")
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
