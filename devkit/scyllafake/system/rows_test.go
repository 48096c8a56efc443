package system

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

func TestInsert(t *testing.T) {
	t.Parallel()
	ks := Keyspaces(catalog.Version{Major: 5, Minor: 1})
	local := ks["system"].Tables["local"]
	m := Insert(local, 100, Values{"key": "local", "tokens": []string{"2", "1"}, "truncated_at": nil, "rack": nil})
	if !bytes.Equal(m.Key, []byte("local")) || m.Token != catalog.Murmur3Token(m.Key) {
		t.Errorf("key %q token %d", m.Key, m.Token)
	}
	row := m.Rows[0]
	if row.Marker == nil || row.Marker.Timestamp != 100 {
		t.Errorf("marker = %+v, want timestamp 100", row.Marker)
	}
	for _, c := range row.Columns {
		switch c.ID {
		case local.ByName["tokens"].ID:
			if len(c.Elements) != 2 || string(c.Elements[0].Path) != "1" || c.Deleted.Timestamp != 99 {
				t.Errorf("tokens = %+v, want the set replaced by {1, 2}", c)
			}
		case local.ByName["rack"].ID:
			if c.Cell == nil || !c.Cell.Dead {
				t.Errorf("rack = %+v, want a cell tombstone", c)
			}
		case local.ByName["truncated_at"].ID:
			if !c.Deleted.Set || len(c.Elements) != 0 {
				t.Errorf("truncated_at = %+v, want it emptied", c)
			}
		}
	}
	if len(row.Columns) != 3 {
		t.Errorf("%d columns written, want only the three that were named", len(row.Columns))
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	columns := Keyspaces(catalog.Version{Major: 5, Minor: 1})["system_schema"].Tables["columns"]
	whole := Delete(columns, 7, Values{"keyspace_name": "ks"})
	if !whole.Deleted.Set || whole.Deleted.Timestamp != 7 {
		t.Errorf("partition deletion = %+v", whole.Deleted)
	}
	prefix := Delete(columns, 7, Values{"keyspace_name": "ks", "table_name": "t"})
	if len(prefix.Ranges) != 1 || string(prefix.Ranges[0].Start.Prefix[0]) != "t" || !prefix.Ranges[0].End.Inclusive {
		t.Errorf("prefix deletion = %+v", prefix.Ranges)
	}
	row := Delete(columns, 7, Values{"keyspace_name": "ks", "table_name": "t", "column_name": "c"})
	if len(row.Rows) != 1 || !row.Rows[0].Deleted.Set {
		t.Errorf("row deletion = %+v", row.Rows)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("50554d6e-29bb-11e5-b345-feff819cdc9f")
	tests := []struct {
		in   any
		want string
	}{
		{"text", "text"},
		{true, "\x01"},
		{int8(-1), "\xff"},
		{int32(258), "\x00\x00\x01\x02"},
		{int64(1), "\x00\x00\x00\x00\x00\x00\x00\x01"},
		{float64(1), "\x3f\xf0\x00\x00\x00\x00\x00\x00"},
		{id, string(id[:])},
		{map[string]string{"b": "2", "a": "1"}, "\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x011\x00\x00\x00\x01b\x00\x00\x00\x012"},
		{Set{{2}, {1}}, "\x00\x00\x00\x02\x00\x00\x00\x01\x02\x00\x00\x00\x01\x01"},
	}
	for _, tt := range tests {
		if got := string(Encode(tt.in)); got != tt.want {
			t.Errorf("Encode(%v) = %x, want %x", tt.in, got, tt.want)
		}
	}
}
