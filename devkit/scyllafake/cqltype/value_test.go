package cqltype

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		b = []byte{}
	}
	return b
}

func TestFromText_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ty         *Type
		text, want string
	}{
		{TInt, "99999999999", "marshaling error: Value out of range for type org.apache.cassandra.db.marshal.Int32Type: '99999999999'"},
		{TSmallInt, "40000", "marshaling error: Value out of range for type org.apache.cassandra.db.marshal.ShortType: '40000'"},
		{TBigInt, "99999999999999999999", "marshaling error: Invalid number format '99999999999999999999'"},
		{TTimestamp, "nonsense", "marshaling error: unable to parse date 'nonsense': marshaling error: Unable to parse timestamp from 'nonsense'"},
		{TTimestamp, "2020-02-30", "marshaling error: unable to parse date '2020-02-30': Day of month is not valid for year"},
		{TTimeUUID, "50554d6e-29bb-41e5-b345-feff819cdc9f", "marshaling error: Unsupported UUID version (4)"},
		{TBlob, "1", "An hex string representing bytes must have an even length"},
		{TTime, "25:00:00", "marshaling error: Hour out of bounds (25)."},
		{TTime, "10", "marshaling error: Timestamp format must be hh:mm:ss[.fffffffff]"},
		{TInet, "nowhere", "marshaling error: Failed to parse inet_addr from 'nowhere'"},
		{TDecimal, "1.2.3", "marshaling error: unable to make BigDecimal from '1.2.3'"},
		{TDouble, "x", "marshaling error: Invalid number format 'x'"},
		{TVarint, "1.5", "marshaling error: unable to make int from '1.5'"},
		{TDate, "2020-13-01", "marshaling error: Unable to coerce '2020-13-01' to a formatted date (long)"},
	}
	for _, tt := range tests {
		_, err := tt.ty.FromText(tt.text)
		if err == nil || !strings.HasSuffix(err.Error(), " "+tt.want) {
			t.Errorf("%s: FromText(%q) error = %v, want %s", tt.ty, tt.text, err, tt.want)
		}
	}
}

// The refused values and the texts match the golden recordings, A7.flags and C1.
func TestValidate(t *testing.T) {
	t.Parallel()
	tuple := NewTuple(TInt, TText)
	tests := []struct {
		ty        *Type
		hex, want string
	}{
		{TInt, "000001", "marshaling error: Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 3 bytes"},
		{TText, "ff", "marshaling error: Validation failed - non-UTF8 character in a UTF8 string, at byte offset 0"},
		{TText, "6161c3", "marshaling error: Validation failed - non-UTF8 character in a UTF8 string, at byte offset 2"},
		{TASCII, "80", "marshaling error: Validation failed - non-ASCII character in an ASCII string"},
		{TBoolean, "0102", "marshaling error: Validation failed for boolean, got 2 bytes"},
		{TBoolean, "02", ""},
		{TTimeUUID, "00112233445566778899aabbccddeeff", "marshaling error: Unsupported UUID version (6)"},
		{TTime, "ffffffffffffffff", ""},
		{TInet, "0a0102", "marshaling error: Validation failed for inet_addr - got 3 bytes"},
		{TDuration, "", "marshaling error: Expected at least 3 bytes for a duration, got 0"},
		{TDuration, "020406", ""},
		{TDuration, "020301", "marshaling error: The duration months, days, and nanoseconds must be all of the same sign (1, -2, -1)"},
		{NewList(TInt), "", "marshaling error: read_simple - not enough bytes (expected 4, got 0)"},
		{NewList(TInt), "0000", "marshaling error: read_simple - not enough bytes (expected 4, got 2)"},
		{NewList(TInt), "0000000100000004", "marshaling error: read_simple_bytes - not enough bytes (requested 4, got 0)"},
		{NewList(TInt), "00000001ffffffff", "null is not supported inside collections"},
		{tuple, "0000000400000001000000016100000001ff", "marshaling error: Value of type org.apache.cassandra.db.marshal.TupleType(" +
			"org.apache.cassandra.db.marshal.Int32Type, org.apache.cassandra.db.marshal.UTF8Type) contained too many fields (expected 2, got 3)"},
		{tuple, "", ""},
		{TVarint, "00000001", ""},
	}
	for _, ty := range primitives {
		if ty != TDuration {
			tests = append(tests, struct {
				ty        *Type
				hex, want string
			}{ty, "", ""})
		}
	}
	for _, tt := range tests {
		err := tt.ty.Validate(mustHex(t, tt.hex))
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: Validate(%s) = %v", tt.ty, tt.hex, err)
		case tt.want != "" && (err == nil || !strings.HasSuffix(err.Error(), "2200 "+tt.want)):
			t.Errorf("%s: Validate(%s) = %v, want %s", tt.ty, tt.hex, err, tt.want)
		}
	}
}

func TestBindError(t *testing.T) {
	t.Parallel()
	err := BindError("pk", TInt.Validate([]byte{1}))
	want := "2200 Exception while binding column pk: marshaling error: Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 1 bytes"
	if err.Error() != want {
		t.Errorf("BindError() = %v, want %s", err, want)
	}
	if err := BindError("l", ErrNullElement); err != ErrNullElement {
		t.Errorf("BindError(ErrNullElement) = %v", err)
	}
}

// Neither Validate nor the functions that read a value ever panic on a client's bytes.
func TestValidate_AnyBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ty := anyType(2).Draw(t, "type")
		v := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 4, 0x80, 0xff}), 0, 24).Draw(t, "bytes")
		if ty.Validate(v) == nil {
			AppendKey(nil, ty, Normalize(ty, v), false)
		}
	})
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	a, b := []byte("a"), []byte("b")
	one, two := EncodeInt32(1), EncodeInt32(2)
	set := NewSet(TText)
	m := NewMap(TText, TInt)
	tests := []struct {
		ty        *Type
		got, want []byte
	}{
		{set, BuildCollection(b, a, b), BuildCollection(a, b)},
		{m, BuildMap([][]byte{b, a, b}, [][]byte{one, two, two}), BuildMap([][]byte{a, b}, [][]byte{two, one})},
		{NewList(set.Freeze()), BuildCollection(BuildCollection(b, a)), BuildCollection(BuildCollection(a, b))},
		{NewTuple(TInt, set), BuildTuple(one, BuildCollection(b, a)), BuildTuple(one, BuildCollection(a, b))},
		{NewList(TText), BuildCollection(b, a, b), BuildCollection(b, a, b)},
	}
	for _, tt := range tests {
		if got := Normalize(tt.ty, tt.got); !bytes.Equal(got, tt.want) {
			t.Errorf("%s: Normalize(%x) = %x, want %x", tt.ty, tt.got, got, tt.want)
		}
	}
}

// C8 of the golden recordings.
func TestTimeUUID(t *testing.T) {
	t.Parallel()
	u, _ := TTimeUUID.FromText("50554d6e-29bb-11e4-b345-feff819cdc9f")
	if got := TimeUUIDMillis(u); got != 1408684521134 {
		t.Errorf("TimeUUIDMillis() = %d, want 1408684521134", got)
	}
	for _, us := range []int64{0, 1, 1795236982021706, -1, -11644473600000000} {
		u := TimeUUIDAt(us, 7)
		if got := TimeUUIDMicros(u[:]); got != us {
			t.Errorf("TimeUUIDMicros(TimeUUIDAt(%d)) = %d", us, got)
		}
		if TTimeUUID.Validate(u[:]) != nil {
			t.Errorf("TimeUUIDAt(%d) is no timeuuid", us)
		}
	}
}
