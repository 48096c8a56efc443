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

// Values of other types are equal or not, by their bytes.
func TestCompare_Unordered(t *testing.T) {
	t.Parallel()
	for _, ty := range otherTypes {
		a, _ := ty.FromText("1")
		b, _ := ty.FromText("2")
		if ty.IsOrdered() || ty.Compare(a, a) != 0 || ty.Compare(a, b) == 0 {
			t.Errorf("%s: IsOrdered() = %v, Compare() = %d and %d", ty, ty.IsOrdered(), ty.Compare(a, a), ty.Compare(a, b))
		}
	}
}
