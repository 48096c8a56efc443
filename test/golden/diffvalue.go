package golden

import (
	"bytes"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// ownToTheRun are columns of the system's tables that differ between nodes.
var ownToTheRun = []string{
	"schema_version", "id", "base_table_id", "version", "gossip_generation",
	"peer", "rpc_address", "broadcast_address", "listen_address", "preferred_ip", "address", "port",
	"supported_features", "thrift_version", "build_id", "build_mode", "table_id", "base_table",
}

// value reports whether got is equivalent to the recorded value want of a column. t is
// the column's type, or that of a part of it.
func (d *Diff) value(col Column, t *cqltype.Type, want, got []byte) bool {
	if bytes.Equal(want, got) && (want == nil) == (got == nil) {
		return true
	}
	if want == nil || got == nil {
		return false
	}
	if strings.HasPrefix(col.Keyspace, "system") && slices.Contains(ownToTheRun, col.Name) {
		return true
	}
	if same, is := d.own.value(col, want, got); is {
		return same
	}
	switch t.Kind {
	case cqltype.TimeUUID, cqltype.UUID:
		if isTimeUUID(t, want) && isTimeUUID(t, got) {
			w, g := cqltype.TimeUUIDMicros(want), cqltype.TimeUUIDMicros(got)
			return w == g || (d.isClock(w) || d.isClock(prepended-w)) && near(w, g, tolerance.Microseconds())
		}
		return strings.Contains(col.Name, "uuid(") && want[6]>>4 == got[6]>>4
	case cqltype.Timestamp, cqltype.BigInt, cqltype.Int, cqltype.Time:
		return d.number(col, t, want, got)
	case cqltype.List, cqltype.Set:
		return d.parts(col, slices.Collect(cqltype.Elements(want)), slices.Collect(cqltype.Elements(got)),
			func(int) *cqltype.Type { return t.Elem })
	case cqltype.Map:
		return d.parts(col, pairs(want), pairs(got), func(i int) *cqltype.Type {
			if i%2 == 0 {
				return t.Key
			}
			return t.Elem
		})
	case cqltype.Tuple:
		return d.parts(col, components(want), components(got), func(i int) *cqltype.Type { return t.Fields[i] })
	}
	return false
}

func pairs(v []byte) (out [][]byte) {
	for k, e := range cqltype.Pairs(v) {
		out = append(out, k, e)
	}
	return out
}

func components(v []byte) (out [][]byte) {
	for _, c := range cqltype.Components(v) {
		out = append(out, c)
	}
	return out
}

func (d *Diff) parts(col Column, want, got [][]byte, of func(int) *cqltype.Type) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !d.value(col, of(i), want[i], got[i]) {
			return false
		}
	}
	return true
}

// number compares numbers that may be times or times to live.
func (d *Diff) number(col Column, t *cqltype.Type, want, got []byte) bool {
	w, ok1 := t.DecodeInt(want)
	g, ok2 := t.DecodeInt(got)
	if !ok1 || !ok2 {
		return false
	}
	name := strings.ToLower(col.Name)
	switch t.Kind {
	case cqltype.Int:
		return strings.HasPrefix(name, "ttl(") && near(w, g, 1)
	case cqltype.Time:
		return strings.Contains(name, "currenttime") && near(w, g, tolerance.Nanoseconds())
	}
	// Milliseconds, or microseconds: also in some columns of type timestamp.
	if d.isClock(w * 1000) {
		return near(w, g, tolerance.Milliseconds())
	}
	return d.isClock(w) && near(w, g, tolerance.Microseconds())
}

// prepended is the sum of a time and of that in the key of a list element prepended
// then: twice 2010-01-01, µs.
const prepended = 2 * 1262304000000000

// isClock reports whether a time in µs is one of the node's clock around the case.
func (d *Diff) isClock(micros int64) bool { return near(micros, d.T, 24*3600*1e6) }

func near(a, b, within int64) bool { return a-b <= within && b-a <= within }
