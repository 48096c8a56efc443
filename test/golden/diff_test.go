package golden

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func TestDiff_Values(t *testing.T) {
	t.Parallel()
	const T = 1795236982021706
	d := NewDiff(T)
	uuidAt := func(us int64, low uint64) []byte { u := cqltype.TimeUUIDAt(us, low); return u[:] }
	parse := func(ty *cqltype.Type, s string) []byte {
		v, err := ty.FromText(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	column := func(name string, ty *cqltype.Type) Column { return Column{"ks", "t", name, ty} }
	tests := []struct {
		name      string
		col       Column
		want, got []byte
		same      bool
	}{
		{"equal", column("v", cqltype.TInt), parse(cqltype.TInt, "1"), parse(cqltype.TInt, "1"), true},
		{"other number", column("v", cqltype.TInt), parse(cqltype.TInt, "1"), parse(cqltype.TInt, "2"), false},
		{"null is not zero length", column("v", cqltype.TText), nil, []byte{}, false},
		{"random bits of one time", column("v", cqltype.TTimeUUID), uuidAt(T, 1), uuidAt(T, 2), true},
		{"clock a little later", column("v", cqltype.TTimeUUID), uuidAt(T, 1), uuidAt(T+1000, 1), true},
		{"clock much later", column("v", cqltype.TTimeUUID), uuidAt(T, 1), uuidAt(T+5e6, 1), false},
		{"another time of long ago", column("v", cqltype.TTimeUUID), uuidAt(1000, 1), uuidAt(2000, 1), false},
		{"ttl one less", column("ttl(v)", cqltype.TInt), parse(cqltype.TInt, "60"), parse(cqltype.TInt, "59"), true},
		{"ttl two less", column("ttl(v)", cqltype.TInt), parse(cqltype.TInt, "60"), parse(cqltype.TInt, "58"), false},
		{"write time", column("writetime(v)", cqltype.TBigInt), cqltype.EncodeInt64(T), cqltype.EncodeInt64(T + 900), true},
		{"a number that is no time", column("v", cqltype.TBigInt), cqltype.EncodeInt64(5), cqltype.EncodeInt64(6), false},
		{
			"random uuid", column("system.uuid()", cqltype.TUUID), parse(cqltype.TUUID, "00112233-4455-4677-8899-aabbccddeeff"),
			parse(cqltype.TUUID, "10112233-4455-4677-8899-aabbccddeeff"), true,
		},
		{
			"another uuid", column("u", cqltype.TUUID), parse(cqltype.TUUID, "00112233-4455-4677-8899-aabbccddeeff"),
			parse(cqltype.TUUID, "10112233-4455-4677-8899-aabbccddeeff"), false,
		},
		{
			"keys of list elements", column("l", cqltype.NewMap(cqltype.TTimeUUID, cqltype.TInt)),
			cqltype.BuildMap([][]byte{uuidAt(T, 1)}, [][]byte{{0, 0, 0, 1}}), cqltype.BuildMap([][]byte{uuidAt(T+10, 2)}, [][]byte{{0, 0, 0, 1}}), true,
		},
		{
			"values of list elements", column("l", cqltype.NewMap(cqltype.TTimeUUID, cqltype.TInt)),
			cqltype.BuildMap([][]byte{uuidAt(T, 1)}, [][]byte{{0, 0, 0, 1}}), cqltype.BuildMap([][]byte{uuidAt(T, 1)}, [][]byte{{0, 0, 0, 2}}), false,
		},
		{"own to the run", Column{"system_schema", "tables", "id", cqltype.TUUID}, uuidAt(5, 1), uuidAt(6, 2), true},
	}
	for _, tt := range tests {
		if got := d.value(tt.col, tt.col.Type, tt.want, tt.got); got != tt.same {
			t.Errorf("%s: value() = %t, want %t", tt.name, got, tt.same)
		}
	}
}

func TestDiff_RowsOfALogMayHaveAnotherOrder(t *testing.T) {
	t.Parallel()
	d := NewDiff(0)
	answer := func(table string, values ...byte) *Answer {
		a := &Answer{Opcode: opResult, Kind: "Rows", Columns: []Column{{"ks", table, "v", cqltype.TTinyInt}}}
		for _, v := range values {
			a.Rows = append(a.Rows, [][]byte{{v}})
		}
		return a
	}
	if m := d.Answers("query", answer("t", 1, 2), answer("t", 2, 1)); m == "" {
		t.Error("the order of an ordinary table does not count")
	}
	if m := d.Answers("query", answer("t_scylla_cdc_log", 1, 2), answer("t_scylla_cdc_log", 2, 1)); m != "" {
		t.Errorf("the order of a log counts: %s", m)
	}
	if m := d.Answers("query", answer("t_scylla_cdc_log", 1, 2), answer("t_scylla_cdc_log", 2, 2)); m == "" {
		t.Error("the rows of a log do not count")
	}
}
