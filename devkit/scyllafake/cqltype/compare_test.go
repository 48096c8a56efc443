package cqltype

import (
	"cmp"
	"testing"
)

// Each list is in ascending order. The timeuuid and uuid lists are responses of a real
// node (golden recordings, C8).
func TestCompare_Order(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ty     *Type
		values []string
	}{
		{TTimeUUID, []string{
			"50554d6e-29bb-11e4-b345-feff819cdc9f", "50554d6e-29bb-11e5-8080-808080808080",
			"50554d6e-29bb-11e5-b345-000000000000", "50554d6e-29bb-11e5-b345-7f7f7f7f7f7f",
			"50554d6e-29bb-11e5-ffff-ffffffffffff", "50554d6e-29bb-11e5-0000-000000000000",
			"50554d6e-29bb-11e5-7f7f-7f7f7f7f7f7f", "50554d6f-29bb-11e5-8080-808080808080",
			"50554d6e-29bc-11e5-b345-feff819cdc9f",
		}},
		{TUUID, []string{
			"00000000-0000-0000-0000-000000000000", "50554d6e-29bb-11e4-8080-808080808080",
			"50554d6e-29bb-11e5-8080-808080808080", "00554d6e-29bb-41e4-8080-808080808080",
			"ff554d6e-29bb-41e4-8080-808080808080", "7f554d6e-29bb-f1e4-8080-808080808080",
		}},
		{TInt, []string{"-2147483648", "-1", "0", "1", "2147483647"}},
		{TTinyInt, []string{"-128", "-1", "0", "127"}},
		{TDecimal, []string{"-1e1000000000", "-10", "-9.99", "-1e-2000000000", "0", "1e-2000000000", "0.5", "0.50001", "9.99", "1e1", "12", "1e1000000000"}},
		{TVarint, []string{"-123456789012345678901234567890", "-256", "-255", "-129", "-128", "-1", "0", "1", "127", "128", "256"}},
		{TDouble, []string{"-Inf", "-1.5", "-0", "0", "1.5", "Inf", "NaN"}},
		{TDate, []string{"-5877641-06-23", "1969-12-31", "1970-01-01", "5881580-07-11"}},
		{TTimestamp, []string{"-1", "0", "2020-01-01"}},
		{TText, []string{"", "A", "a", "aa", "b", "ü"}},
		{TInet, []string{"10.0.0.1", "127.0.0.1", "192.168.0.1"}},
	}
	for _, tt := range tests {
		var vs [][]byte
		for _, s := range tt.values {
			v, err := tt.ty.FromText(s)
			if err != nil {
				t.Fatalf("%s: FromText(%q): %v", tt.ty, s, err)
			}
			vs = append(vs, v)
		}
		for i := range vs {
			for j := range vs {
				if got, want := tt.ty.Compare(vs[i], vs[j]), cmp.Compare(i, j); got != want {
					t.Errorf("%s: Compare(%s, %s) = %d, want %d", tt.ty, tt.values[i], tt.values[j], got, want)
				}
			}
			if got := tt.ty.Compare([]byte{}, vs[i]); got != -1 && len(vs[i]) > 0 {
				t.Errorf("%s: the zero-length value does not sort before %s", tt.ty, tt.values[i])
			}
			if got := tt.ty.Compare(nil, vs[i]); got != -1 {
				t.Errorf("%s: null does not sort before %s", tt.ty, tt.values[i])
			}
		}
	}
}

func TestCompare_Composites(t *testing.T) {
	t.Parallel()
	one, two := EncodeInt32(1), EncodeInt32(2)
	list := NewList(TInt).Freeze()
	tuple := NewTuple(TInt, TInt)
	m := NewMap(TInt, TInt).Freeze()
	tests := []struct {
		name string
		ty   *Type
		a, b []byte
		want int
	}{
		{"shorter list first", list, BuildCollection(one), BuildCollection(one, one), -1},
		{"elements before length", list, BuildCollection(two), BuildCollection(one, one), 1},
		{"null component first", tuple, BuildTuple(one, nil), BuildTuple(one, EncodeInt32(-5)), -1},
		{"nulls at the end do not count", tuple, BuildTuple(one), BuildTuple(one, nil), 0},
		{"missing is null", tuple, BuildTuple(one), BuildTuple(one, one), -1},
		{"map value decides", m, BuildMap([][]byte{one}, [][]byte{two}), BuildMap([][]byte{one}, [][]byte{one}), 1},
		{"map key before value", m, BuildMap([][]byte{one}, [][]byte{two}), BuildMap([][]byte{two}, [][]byte{one}), -1},
	}
	for _, tt := range tests {
		if got := tt.ty.Compare(tt.a, tt.b); got != tt.want {
			t.Errorf("%s: Compare() = %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestCompare_EqualNumbersOfDifferentBytes(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"1.0", "1"}, {"1e3", "1000"}, {"0.00", "0"}, {"-0.10", "-0.1"}} {
		a, _ := TDecimal.FromText(pair[0])
		b, _ := TDecimal.FromText(pair[1])
		if TDecimal.Compare(a, b) != 0 || string(AppendKey(nil, TDecimal, a, false)) != string(AppendKey(nil, TDecimal, b, false)) {
			t.Errorf("%s and %s are not equal", pair[0], pair[1])
		}
	}
}
