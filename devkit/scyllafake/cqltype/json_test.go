package cqltype

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFromJSON(t *testing.T) {
	t.Parallel()
	udt := NewUDT("ks", "u", Field{"x", TInt}, Field{"y", TText})
	tests := []struct {
		ty         *Type
		json, want string
	}{
		{TInt, `5`, "5"},
		{TInt, `"5"`, "5"},
		{TInt, `1.2e1`, "12"},
		{TInt, `null`, "null"},
		{TText, `"z \"q\""`, `'z "q"'`},
		{TBlob, `"0xCAFE"`, "0xcafe"},
		{TBoolean, `" True "`, "true"},
		{TTimestamp, `"2020-01-01"`, "'2020-01-01 00:00:00.000+0000'"},
		{TTimestamp, `1600000000123`, "'2020-09-13 12:26:40.123+0000'"},
		{TDecimal, `19.95`, "1995E-2"},
		{TDouble, `1.5`, "1.5"},
		{NewList(TInt), `[3, 1]`, "[3, 1]"},
		{NewSet(TText), `["b", "a", "b"]`, "{'a', 'b'}"},
		{NewMap(TInt, TText), `{"2": "b", "1": "a"}`, "{1: 'a', 2: 'b'}"},
		{NewMap(TUUID, TInt), `{"00112233-4455-6677-8899-aabbccddeeff": 1}`, "{00112233-4455-6677-8899-aabbccddeeff: 1}"},
		{NewTuple(TInt, TText), `[1, null]`, "(1, null)"},
		{udt, `{"y": "q"}`, "{x: null, y: 'q'}"},
	}
	for _, tt := range tests {
		j, err := ParseJSON(tt.json)
		if err != nil {
			t.Fatal(err)
		}
		v, err := tt.ty.FromJSON(j)
		if err != nil {
			t.Errorf("%s: FromJSON(%s) error = %v", tt.ty, tt.json, err)
			continue
		}
		if got := tt.ty.Format(v); got != tt.want {
			t.Errorf("%s: FromJSON(%s) = %s, want %s", tt.ty, tt.json, got, tt.want)
		}
	}
}

func TestFromJSON_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ty         *Type
		json, want string
	}{
		{TInt, `5000000000`, "marshaling error: Value 5000000000 out of range"},
		{TInt, `1.5`, "marshaling error: Incorrect JSON floating-point value for int64 type: 1.5 (it should not contain fractional part 0.5)"},
		{TInt, `true`, "marshaling error: Incorrect JSON value for int64 type: true"},
		{TBlob, `"cafe"`, "marshaling error: Blob JSON strings must start with 0x"},
		{TUUID, `5`, "marshaling error: uuid_type must be represented as string in JSON, instead got '5'"},
		{NewList(TInt), `{}`, "marshaling error: list_type must be represented as JSON Array"},
		{NewList(TInt), `[null]`, "null is not supported inside collections"},
		{NewTuple(TInt), `[1, 2]`, "marshaling error: Too many values (2) for tuple with size 1"},
		{NewUDT("ks", "u"), `{"z": 1}`, "marshaling error: Extraneous field definition for user type u: z"},
	}
	for _, tt := range tests {
		j, err := ParseJSON(tt.json)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tt.ty.FromJSON(j)
		if err == nil || !strings.HasSuffix(err.Error(), "2200 "+tt.want) {
			t.Errorf("%s: FromJSON(%s) error = %v, want %s", tt.ty, tt.json, err, tt.want)
		}
	}
	for _, text := range []string{"", "{", "1 2", `{"a": 1,}`, strings.Repeat("[", 200)} {
		if _, err := ParseJSON(text); err == nil {
			t.Errorf("ParseJSON(%q) succeeds", text)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ty         *Type
		text, want string
	}{
		{TInt, "7", "7"},
		{TText, "a\"\n\x01ü", `"a\"\n\u0001ü"`},
		{TBlob, "cafe", `"0xcafe"`},
		{TDouble, "NaN", "null"},
		{TDouble, "1000000", "1000000"},
		{TDouble, "1e20", "1e+20"},
		{TDecimal, "-12.50", "-12.5"},
		{TDecimal, "0.001", "0.001"},
		{TDecimal, "1e3", "1000"},
		{TDuration, "1y2d3ms", `"1y2d3ms"`},
		{TTimestamp, "1600000000123", `"2020-09-13T12:26:40.123000"`},
		{TDate, "2020-01-01", `"2020-01-01"`},
		{TTimeUUID, "50554d6e-29bb-11e4-b345-feff819cdc9f", `"50554d6e-29bb-11e4-b345-feff819cdc9f"`},
	}
	for _, tt := range tests {
		v, err := tt.ty.FromText(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tt.ty.AppendJSON(nil, v)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: AppendJSON(%s) = %s, %v, want %s", tt.ty, tt.text, got, err, tt.want)
		}
	}
	m := NewMap(TInt, NewList(TText))
	v := BuildMap([][]byte{EncodeInt32(1)}, [][]byte{BuildCollection([]byte("a"), []byte("b"))})
	if got, _ := m.AppendJSON(nil, v); string(got) != `{"1": ["a", "b"]}` {
		t.Errorf("AppendJSON(map) = %s", got)
	}
	if _, err := TInt.AppendJSON(nil, []byte{}); err == nil {
		t.Error("AppendJSON of a zero-length int succeeds")
	}
}

// fromJson() parses the output of toJson(), for types whose JSON is complete.
func TestJSON_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ty := rapid.SampledFrom([]*Type{
			TInt, TBigInt, TText, TBlob, TVarint, TUUID, TTimeUUID, TDecimal,
			NewList(TInt), NewSet(TText), NewMap(TInt, TText), NewTuple(TInt, TBlob),
		}).Draw(t, "type")
		v := valueOf(ty).Draw(t, "value")
		text, err := ty.AppendJSON(nil, v)
		if err != nil {
			return // holds a zero-length number
		}
		j, err := ParseJSON(string(text))
		if err != nil {
			t.Fatalf("ParseJSON(%s) = %v", text, err)
		}
		back, err := ty.FromJSON(j)
		if err != nil {
			t.Fatalf("FromJSON(%s) = %v", text, err)
		}
		if ty.Compare(v, back) != 0 {
			t.Fatalf("%s: %x became %s became %x", ty, v, text, back)
		}
	})
}

func TestOption_RoundTrip(t *testing.T) {
	t.Parallel()
	if got := AppendOption(nil, TText); !bytes.Equal(got, []byte{0, 0x0d}) {
		t.Errorf("AppendOption(text) = %x, want 000d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		ty := anyType(2).Draw(t, "type")
		enc := AppendOption(nil, ty)
		got, rest, ok := ReadOption(append(enc, 0xaa))
		if !ok || !bytes.Equal(rest, []byte{0xaa}) || !bytes.Equal(AppendOption(nil, got), enc) {
			t.Fatalf("ReadOption(AppendOption(%s)) = %s, %x, %t", ty, got, rest, ok)
		}
		if _, _, ok := ReadOption(enc[:len(enc)-1]); ok {
			t.Fatalf("ReadOption accepts a cut %s", ty)
		}
	})
}
