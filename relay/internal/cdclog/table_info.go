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

// TableInfo contains the schema of an outbox table and its CDC log.
type TableInfo struct {
	// disabled is true if CDC is off: the log still exists but receives no writes.
	// keysOnly is true if the log contains only the key columns.
	disabled, keysOnly bool
	// CDCTTL and RowTTL are zero if nothing expires.
	CDCTTL, RowTTL time.Duration
	// Created and Logged are the creation times of the table and its CDC log, Altered is
	// the time of the last statement that created or altered the table; zero if unknown.
	Created, Logged, Altered time.Time
	options                  string // of CDC, as stored
	// former is a time at which another table had the name, zero if none is known: its rows, as
	// a backup restores them, are not in the log.
	former time.Time
}

// MadeAfter sets a time at which a table of that name existed.
func (f *TableInfo) MadeAfter(t time.Time) {
	f.former = time.Time{}
	if !t.IsZero() && f.Created.After(t) {
		f.former = t
	}
}

// Seen returns what MadeAfter is to be called with for later states of the table: a time at
// which a former one existed, or this one began.
func (f *TableInfo) Seen() time.Time {
	if f.former.IsZero() {
		return f.Created
	}
	return f.former
}

// ReadTableInfo returns the schema of an outbox table. The creation times come from the
// table ids, UUIDs of version 1. If the error wraps ErrCDCOptions, the result is complete
// except for the TTL of the log, which is then ScyllaDB's default.
func ReadTableInfo(ctx context.Context, session *gocql.Session, keyspace, table string) (f TableInfo, err error) {
	var name string
	var id gocql.UUID
	var ttl int
	var extensions map[string][]byte
	var altered int64
	var options error
	found, log := false, table+"_scylla_cdc_log"
	// ScyllaDB writes the whole row at each ALTER TABLE.
	iter := session.Query("SELECT table_name, id, default_time_to_live, extensions, writetime(id) FROM system_schema.tables WHERE keyspace_name = ? AND table_name IN (?, ?)",
		keyspace, table, log).WithContext(ctx).Idempotent(true).Iter()
	for iter.Scan(&name, &id, &ttl, &extensions, &altered) {
		if name == log {
			f.Logged = creationTime(id)
			continue
		}
		found = true
		f.RowTTL, f.Created, f.options = time.Duration(ttl)*time.Second, creationTime(id), string(extensions["cdc"])
		if altered > 0 {
			f.Altered = time.UnixMicro(altered)
		}
		if options = f.setOptions(extensions["cdc"]); options != nil {
			options = fmt.Errorf("read the CDC options of table %s.%s: %w", keyspace, table, options)
		}
	}
	err = iter.Close()
	if err == nil && !found {
		err = gocql.ErrNotFound
	}
	if err != nil {
		return TableInfo{}, fmt.Errorf("read the schema of table %s.%s: %w", keyspace, table, err)
	}
	return f, options
}

// OutrunAfter is the fraction of the CDC ttl after which a position counts as outrun: the
// oldest rows of the log expire while they are read, so their reader needs some time.
const OutrunAfter = 15. / 16

// Outruns reports whether the log may lose rows after a position before they are read, at the
// time by which the reader takes them for expired (Clock.Latest for the sweep reader).
func (f *TableInfo) Outruns(position, now time.Time) bool {
	return f.CDCTTL > 0 && position.Before(now.Add(-time.Duration(float64(f.CDCTTL)*OutrunAfter)))
}

const (
	// alterSettles is how long after an ALTER TABLE nodes may still write rows by the
	// options of before, by the clocks of writers. ScyllaDB refuses write times that are 5 s
	// ahead of its clock only while CDC is on.
	alterSettles = 30 * time.Second
	// madeWithin is how far the times of one statement that creates a table and its log
	// may differ.
	madeWithin = time.Second
)

// Changed returns when the log was last created or altered, zero if it is as old as the
// table and no other table had its name, or its age is unknown. CDC may have been off before,
// and the log may have been dropped: neither leaves another mark.
func (f *TableInfo) Changed() time.Time {
	at := f.Altered
	if f.Logged.After(at) {
		at = f.Logged
	}
	if f.former.IsZero() && !f.Created.IsZero() && at.Sub(f.Created) < madeWithin {
		return time.Time{}
	}
	return at
}

// Unlogged returns until when rows written after position may be missing from the log,
// or may have another ttl than CDCTTL; false if the log has all of them.
func (f *TableInfo) Unlogged(position time.Time) (until time.Time, ok bool) {
	at := f.Changed()
	return at.Add(alterSettles), at.After(position)
}

// MadeWithTable reports whether the log was created together with the table.
func (f *TableInfo) MadeWithTable() bool {
	return !f.Created.IsZero() && !f.Logged.IsZero() && f.Logged.Sub(f.Created) < time.Minute
}

// SameOptions reports whether o has the same CDC options and the same log.
func (f *TableInfo) SameOptions(o *TableInfo) bool {
	return f.options == o.options && f.Logged.Equal(o.Logged)
}

// creationTime returns the time of a UUID of version 1, zero for any other version.
func creationTime(id gocql.UUID) time.Time {
	if id.Version() != 1 {
		return time.Time{}
	}
	return id.Time()
}

// defaultCDCTTL is ScyllaDB's default TTL of the CDC log.
const defaultCDCTTL = 24 * time.Hour

// ErrCDCOptions is the error of CDC options in an unknown encoding.
var ErrCDCOptions = errors.New("not a map of strings")

// setOptions sets the options from the table extension cdc. After an error the unreadable
// options have ScyllaDB's defaults for a table with a log.
func (f *TableInfo) setOptions(extension []byte) error {
	f.CDCTTL = defaultCDCTTL
	options, err := cdcOptions(extension)
	f.disabled, f.keysOnly = options["enabled"] == "false", options["delta"] == "keys"
	if v, ok := options["ttl"]; ok {
		n, bad := strconv.ParseInt(v, 10, 32)
		if bad != nil || n < 0 {
			return fmt.Errorf("%w: ttl %q is not a number of seconds", ErrCDCOptions, v)
		}
		f.CDCTTL = time.Duration(n) * time.Second
	}
	return err
}

// Check returns nil if the log contains all columns of events, otherwise an
// *outbox.MappingError.
func (f *TableInfo) Check(table string) error {
	switch {
	case f.disabled:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log but CDC is disabled, so the log receives no new events", Fix: EnableCDC(table)}
	case f.keysOnly:
		return &outbox.MappingError{Table: table, Problem: "has a CDC log with only the key columns ('delta': 'keys')", Fix: EnableCDC(table)}
	}
	return nil
}

// Outlives returns nil if the CDC log keeps its rows for longer than the confidence
// window, otherwise an *outbox.MappingError: the sweep reader reads rows at that age.
func (f *TableInfo) Outlives(table string, window time.Duration) error {
	if f.CDCTTL == 0 || f.CDCTTL > window {
		return nil
	}
	return &outbox.MappingError{
		Table: table, Problem: fmt.Sprintf("keeps its CDC log's rows for %s, no longer than the confidence window of %s, so the sweep reader finds none", f.CDCTTL, window),
		Fix: EnableCDC(table),
	}
}

// cdcOptions decodes the table extension cdc: the number of pairs, then each string
// preceded by its length, all as little-endian uint32. After an error it returns the
// pairs decoded so far.
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

// EnableCDC returns the statement that sets the CDC options required by a relay.
func EnableCDC(table string) string {
	return "ALTER TABLE " + table + " WITH cdc = {'enabled': true, 'delta': 'full', 'ttl': 259200}"
}
