package cdclog

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

// TableInfo is what the schema says about an outbox table and its CDC log.
type TableInfo struct {
	// disabled says that writes no longer come to the log, which outlives that, and
	// keysOnly that they come without the columns an event is made of.
	disabled, keysOnly bool
	// CDCTTL and rowTTL are zero where nothing expires.
	CDCTTL, RowTTL time.Duration
	// Created and logged are when the table and its CDC log were made; zero if
	// that cannot be told.
	Created, Logged time.Time
}

// ReadTableInfo reads the facts of an outbox table. ScyllaDB names tables by
// UUIDs of version 1, which have a time in them. With an error that wraps
// errCDCOptions all is known but the log's TTL, which is then ScyllaDB's default.
func ReadTableInfo(ctx context.Context, session *gocql.Session, keyspace, table string) (f TableInfo, err error) {
	var id gocql.UUID
	var ttl int
	var extensions map[string][]byte
	err = session.Query("SELECT id, default_time_to_live, extensions FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", keyspace, table).
		WithContext(ctx).Idempotent(true).Scan(&id, &ttl, &extensions)
	if err != nil {
		return f, fmt.Errorf("look up table %s.%s: %w", keyspace, table, err)
	}
	f.RowTTL, f.Created = time.Duration(ttl)*time.Second, timeOf(id)
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
		f.Logged = timeOf(id)
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

// ErrCDCOptions says that the options are not as ScyllaDB writes them.
var ErrCDCOptions = errors.New("not a map of strings")

// setOptions takes over the table extension cdc. After an error those that could not
// be read are ScyllaDB's defaults for a table that has a log.
func (f *TableInfo) setOptions(extension []byte) error {
	f.CDCTTL = defaultCDCTTL
	options, err := cdcOptions(extension)
	f.disabled, f.keysOnly = options["enabled"] == "false", options["delta"] == "keys"
	if v, ok := options["ttl"]; ok {
		n, bad := strconv.ParseInt(v, 10, 32)
		if bad != nil || n < 0 {
			return fmt.Errorf("%w: ttl %q is no number of seconds", ErrCDCOptions, v)
		}
		f.CDCTTL = time.Duration(n) * time.Second
	}
	return err
}

// Check returns nil if the log has what events are made of, otherwise an
// *outbox.MappingError.
func (f *TableInfo) Check(table string) error {
	switch {
	case f.disabled:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log, and CDC is disabled, so new events do not come to it", Fix: EnableCDC(table)}
	case f.keysOnly:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log with the keys alone ('delta': 'keys')", Fix: EnableCDC(table)}
	}
	return nil
}

// Outlives returns nil if the CDC log keeps its rows for longer than the confidence
// window, otherwise an *outbox.MappingError: the sweep reads rows at that age.
func (f *TableInfo) Outlives(table string, window time.Duration) error {
	if f.CDCTTL == 0 || f.CDCTTL > window {
		return nil
	}
	return &outbox.MappingError{
		Table: table, Problem: fmt.Sprintf("keeps its CDC log's rows for %s, no longer than the confidence window of %s, so the sweep reader finds none", f.CDCTTL, window),
		Fix: EnableCDC(table),
	}
}

// cdcOptions reads the table extension cdc: a count of pairs, and each string with
// its length before it, all as little-endian uint32. With an error come those that
// could be read.
func cdcOptions(b []byte) (map[string]string, error) {
	next := func() (uint32, error) {
		if len(b) < 4 {
			return 0, ErrCDCOptions
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return n, nil
	}
	text := func() (string, error) {
		n, err := next()
		if err != nil || uint64(n) > uint64(len(b)) {
			return "", ErrCDCOptions
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

// EnableCDC is the statement that makes a table's CDC log what a relay reads.
func EnableCDC(table string) string {
	return "ALTER TABLE " + table + " WITH cdc = {'enabled': true, 'delta': 'full', 'ttl': 259200}"
}
