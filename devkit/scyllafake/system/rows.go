package system

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// Values are the columns of one row by name: Go values of the types that Encode takes.
// A nil value is null: its cell is deleted. Other columns do not change.
type Values map[string]any

// Insert returns the mutation that writes one row of a system table, as an INSERT with
// this timestamp (µs) does. Non-frozen collections are replaced as a whole. It panics
// when vals does not fit the table: the callers' rows are fixed in the code.
func Insert(t *catalog.Table, timestamp int64, vals Values) *store.Mutation {
	m := newKeyedMutation(t, vals)
	row := store.Row{
		Clustering: values(t, t.Clustering, vals),
		Marker:     &store.Cell{Timestamp: timestamp},
	}
	row.Columns = cells(t, t.Regulars, timestamp, vals)
	m.Rows = []store.Row{row}
	if static := cells(t, t.Statics, timestamp, vals); len(static) > 0 {
		m.Static = &store.Row{Columns: static}
	}
	return m
}

// Delete returns the mutation that deletes one row; of a table without
// clustering key, or when vals names no clustering column, the partition.
func Delete(t *catalog.Table, timestamp int64, vals Values) *store.Mutation {
	m := newKeyedMutation(t, vals)
	gone := store.Deletion{Set: true, Timestamp: timestamp}
	var prefix [][]byte
	for _, c := range t.Clustering {
		v, ok := vals[c.Name]
		if !ok {
			break
		}
		prefix = append(prefix, Encode(v))
	}
	switch len(prefix) {
	case 0:
		m.Deleted = gone
	case len(t.Clustering):
		m.Rows = []store.Row{{Clustering: prefix, Deleted: gone}}
	default:
		b := store.Bound{Prefix: prefix, Inclusive: true}
		m.Ranges = []store.RangeDeletion{{Range: store.Range{Start: b, End: b}, Deletion: gone}}
	}
	return m
}

func newKeyedMutation(t *catalog.Table, vals Values) *store.Mutation {
	for name := range vals {
		if t.ByName[name] == nil {
			panic(fmt.Sprintf("%s.%s has no column %s", t.Keyspace, t.Name, name))
		}
	}
	key, err := t.EncodeKey(values(t, t.PartitionKey, vals))
	if err != nil {
		panic(fmt.Sprintf("%s.%s: %v", t.Keyspace, t.Name, err))
	}
	return &store.Mutation{Table: t, Key: key, Token: t.Token(key)}
}

// values returns the serialised values of key columns.
func values(t *catalog.Table, cols []*catalog.Column, vals Values) [][]byte {
	out := make([][]byte, len(cols))
	for i, c := range cols {
		v, ok := vals[c.Name]
		if !ok {
			panic(fmt.Sprintf("%s.%s: no value for key column %s", t.Keyspace, t.Name, c.Name))
		}
		out[i] = Encode(v)
	}
	return out
}

func cells(t *catalog.Table, cols []*catalog.Column, timestamp int64, vals Values) []store.ColumnData {
	var out []store.ColumnData
	for _, c := range cols {
		v, ok := vals[c.Name]
		if !ok {
			continue
		}
		d := store.ColumnData{ID: c.ID}
		switch {
		case c.Type.Elem != nil && !c.Type.Frozen:
			d.Deleted = store.Deletion{Set: true, Timestamp: timestamp - 1}
			d.Elements = elements(v, timestamp)
		case v == nil:
			d.Cell = &store.Cell{Timestamp: timestamp, Dead: true}
		default:
			d.Cell = &store.Cell{Timestamp: timestamp, Value: Encode(v)}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b store.ColumnData) int { return int(a.ID - b.ID) })
	return out
}

// elements returns the cells of a non-frozen set<text>, the only such type of written
// rows; nil is the empty set.
func elements(v any, timestamp int64) []store.Element {
	if v == nil {
		return nil
	}
	var out []store.Element
	for _, s := range slices.Sorted(slices.Values(v.([]string))) {
		out = append(out, store.Element{
			Path: []byte(s),
			Cell: store.Cell{Timestamp: timestamp, Value: []byte{}},
		})
	}
	return out
}

// Timestamp is a CQL timestamp in milliseconds.
type Timestamp int64

// At returns t as a CQL timestamp.
func At(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// Set is a frozen set<blob>. It is written in the given order: ScyllaDB itself writes the
// streams of a CDC generation in the order of their shards.
type Set [][]byte

// Encode serialises a value: string (text), []byte (blob), bool, int8
// (tinyint), int32 (int), int64 (bigint), float64 (double), uuid.UUID (uuid
// and timeuuid), netip.Addr (inet), Timestamp, Set, map[string]string
// and map[string][]byte (frozen maps). It panics on any other.
func Encode(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case []byte:
		return v
	case bool:
		return cqltype.EncodeBool(v)
	case int8:
		return []byte{byte(v)}
	case int32:
		return cqltype.EncodeInt32(v)
	case int64:
		return cqltype.EncodeInt64(v)
	case Timestamp:
		return cqltype.EncodeInt64(int64(v))
	case float64:
		return cqltype.EncodeDouble(v)
	case uuid.UUID:
		return v[:]
	case netip.Addr:
		return v.AsSlice()
	case Set:
		return cqltype.BuildCollection(v...)
	case map[string]string:
		return encodeMap(v)
	case map[string][]byte:
		return encodeMap(v)
	}
	panic(fmt.Sprintf("cannot encode a %T", v))
}

func encodeMap[V string | []byte](m map[string]V) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = cqltype.AppendElement(cqltype.AppendElement(out, []byte(k)), []byte(m[k]))
	}
	return out
}
