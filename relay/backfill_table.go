package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// tableFacts is what the schema says about an outbox table and its CDC log.
type tableFacts struct {
	// disabled says that writes no longer come to the log, which outlives that, and
	// keysOnly that they come without the columns an event is made of.
	disabled, keysOnly bool
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
	if options = f.setOptions(extensions["cdc"]); options != nil {
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

// setOptions takes over the table extension cdc. After an error those that could not
// be read are ScyllaDB's defaults for a table that has a log.
func (f *tableFacts) setOptions(extension []byte) error {
	f.cdcTTL = defaultCDCTTL
	options, err := cdcOptions(extension)
	f.disabled, f.keysOnly = options["enabled"] == "false", options["delta"] == "keys"
	if v, ok := options["ttl"]; ok {
		n, bad := strconv.ParseInt(v, 10, 32)
		if bad != nil || n < 0 {
			return fmt.Errorf("%w: ttl %q is no number of seconds", errCDCOptions, v)
		}
		f.cdcTTL = time.Duration(n) * time.Second
	}
	return err
}

// check returns nil if the log has what events are made of, otherwise an
// *outbox.MappingError.
func (f *tableFacts) check(table string) error {
	switch {
	case f.disabled:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log, and CDC is disabled, so new events do not come to it", Fix: enableCDC(table)}
	case f.keysOnly:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log with the keys alone ('delta': 'keys')", Fix: enableCDC(table)}
	}
	return nil
}

// outlives returns nil if the CDC log keeps its rows for longer than the confidence
// window, otherwise an *outbox.MappingError: the sweep reads rows at that age.
func (f *tableFacts) outlives(table string, window time.Duration) error {
	if f.cdcTTL == 0 || f.cdcTTL > window {
		return nil
	}
	return &outbox.MappingError{
		Table: table, Problem: fmt.Sprintf("keeps its CDC log's rows for %s, no longer than the confidence window of %s, so the sweep reader finds none", f.cdcTTL, window),
		Fix: enableCDC(table),
	}
}

// cdcOptions reads the table extension cdc: a count of pairs, and each string with
// its length before it, all as little-endian uint32. With an error come those that
// could be read.
func cdcOptions(b []byte) (map[string]string, error) {
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
	out := make(map[string]string)
	pairs, err := next()
	for ; err == nil && pairs > 0; pairs-- {
		var k, v string
		if k, err = text(); err == nil {
			v, err = text()
		}
		if err == nil {
			out[k] = v
		}
	}
	return out, err
}
