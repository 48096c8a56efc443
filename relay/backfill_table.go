package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

// tableFacts is what the schema says about how long rows live.
type tableFacts struct {
	// cdcTTL and rowTTL are zero where nothing expires.
	cdcTTL, rowTTL time.Duration
	// created and logged are when the table and its CDC log were made; zero if
	// that cannot be told.
	created, logged time.Time
}

// cqlTableFacts reads the facts of an outbox table. ScyllaDB names tables by
// UUIDs of version 1, which have a time in them. With an error that wraps
// errCDCOptions all is known but the log's TTL, which is then ScyllaDB's default.
func cqlTableFacts(ctx context.Context, session *gocql.Session, keyspace, table string) (f tableFacts, err error) {
	var id gocql.UUID
	var ttl int
	var extensions map[string][]byte
	err = session.Query("SELECT id, default_time_to_live, extensions FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", keyspace, table).
		WithContext(ctx).Idempotent(true).Scan(&id, &ttl, &extensions)
	if err != nil {
		return f, fmt.Errorf("look up table %s.%s: %w", keyspace, table, err)
	}
	f.rowTTL, f.created = time.Duration(ttl)*time.Second, timeOf(id)
	var options error
	if f.cdcTTL, options = cdcTTL(extensions["cdc"]); options != nil {
		options = fmt.Errorf("read the CDC options of table %s.%s: %w", keyspace, table, options)
	}
	err = session.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", keyspace, table+"_scylla_cdc_log").
		WithContext(ctx).Idempotent(true).Scan(&id)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return f, fmt.Errorf("look up the CDC log of table %s.%s: %w", keyspace, table, err)
	}
	if err == nil {
		f.logged = timeOf(id)
	}
	return f, options
}

// timeOf is the time in a UUID of version 1, zero for any other.
func timeOf(id gocql.UUID) time.Time {
	if id.Version() != 1 {
		return time.Time{}
	}
	return id.Time()
}

// defaultCDCTTL is ScyllaDB's.
const defaultCDCTTL = 24 * time.Hour

// errCDCOptions says that the options are not as ScyllaDB writes them.
var errCDCOptions = errors.New("not a map of strings")

// cdcTTL finds the log's TTL in the table extension cdc: a count of pairs, and
// each string with its length before it, all as little-endian uint32.
func cdcTTL(b []byte) (time.Duration, error) {
	next := func() (uint32, error) {
		if len(b) < 4 {
			return 0, errCDCOptions
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return n, nil
	}
	text := func() (string, error) {
		n, err := next()
		if err != nil || uint64(n) > uint64(len(b)) {
			return "", errCDCOptions
		}
		s := string(b[:n])
		b = b[n:]
		return s, nil
	}
	pairs, err := next()
	for ; err == nil && pairs > 0; pairs-- {
		var k, v string
		if k, err = text(); err == nil {
			v, err = text()
		}
		if err == nil && k == "ttl" {
			n, err := strconv.ParseInt(v, 10, 32)
			if err != nil || n < 0 {
				return defaultCDCTTL, fmt.Errorf("%w: ttl %q is no number of seconds", errCDCOptions, v)
			}
			return time.Duration(n) * time.Second, nil
		}
	}
	return defaultCDCTTL, err
}
