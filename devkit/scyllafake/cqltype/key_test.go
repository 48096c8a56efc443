package cqltype

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestAppendKey_OrdersAsCompare(t *testing.T) {
	t.Parallel()
	for _, ty := range keyTypes {
		t.Run(ty.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { checkKeys(t, ty) })
		})
	}
}

func checkKeys(t *rapid.T, ty *Type) {
	a, b := drawValue(ty).Draw(t, "a"), drawValue(ty).Draw(t, "b")
	if err := ty.Validate(a); err != nil {
		t.Fatalf("Validate(%s %x) = %v", ty, a, err)
	}
	want := reference(ty, a, b)
	if got := ty.Compare(a, b); got != want {
		t.Fatalf("%s: Compare(%x, %x) = %d, want %d", ty, a, b, got, want)
	}
	if back := ty.Compare(b, a); back != -want {
		t.Fatalf("%s: Compare(%x, %x) = %d but the other way %d", ty, a, b, want, back)
	}
	ka, kb := AppendKey(nil, ty, a, false), AppendKey(nil, ty, b, false)
	if got := bytes.Compare(ka, kb); got != want {
		t.Fatalf("%s: order of keys of %x and %x is %d, want %d\n%x\n%x", ty, a, b, got, want, ka, kb)
	}
	da, db := AppendKey(nil, ty, a, true), AppendKey(nil, ty, b, true)
	if got := bytes.Compare(da, db); got != -want {
		t.Fatalf("%s: descending order of %x and %x is %d, want %d", ty, a, b, got, -want)
	}
	if want != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka) || bytes.HasPrefix(da, db) || bytes.HasPrefix(db, da)) {
		t.Fatalf("%s: the key of %x or %x is a prefix of the other", ty, a, b)
	}
	for _, k := range [][]byte{ka, da} {
		if k[0] == 0 || k[0] == 0xff {
			t.Fatalf("%s: key %x begins with a byte kept for bounds", ty, k)
		}
	}
}

func TestCompare_IsTransitive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ty := keyType().Draw(t, "type")
		a, b, c := drawValue(ty).Draw(t, "a"), drawValue(ty).Draw(t, "b"), drawValue(ty).Draw(t, "c")
		if ty.Compare(a, b) <= 0 && ty.Compare(b, c) <= 0 && ty.Compare(a, c) > 0 {
			t.Fatalf("%s: %x <= %x <= %x but not the first and the last", ty, a, b, c)
		}
	})
}

func TestAppendKey_KeepsThePrefix(t *testing.T) {
	t.Parallel()
	got := AppendKey([]byte{1, 2, 3}, TInt, EncodeInt32(5), true)
	want := append([]byte{1, 2, 3}, AppendKey(nil, TInt, EncodeInt32(5), true)...)
	if !bytes.Equal(got, want) {
		t.Errorf("AppendKey() = %x, want %x", got, want)
	}
}

// Columns one after the other order like tuples of their values.
func TestAppendKey_Concatenates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		t1, t2 := keyType().Draw(t, "t1"), keyType().Draw(t, "t2")
		desc := rapid.Bool().Draw(t, "desc")
		a1, b1 := drawValue(t1).Draw(t, "a1"), drawValue(t1).Draw(t, "b1")
		a2, b2 := drawValue(t2).Draw(t, "a2"), drawValue(t2).Draw(t, "b2")
		want := reference(t1, a1, b1)
		if desc {
			want = -want
		}
		if want == 0 {
			want = reference(t2, a2, b2)
		}
		ka := AppendKey(AppendKey(nil, t1, a1, desc), t2, a2, false)
		kb := AppendKey(AppendKey(nil, t1, b1, desc), t2, b2, false)
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("order of (%x, %x) and (%x, %x) is %d, want %d", a1, a2, b1, b2, got, want)
		}
	})
}

func TestAppendKey_FixedSizesDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 64)
	for _, ty := range keyTypes {
		n := ty.FixedSize()
		if n == 0 {
			continue
		}
		v := bytes.Repeat([]byte{0x11}, n)
		if got := testing.AllocsPerRun(100, func() {
			buf = AppendKey(buf[:0], ty, v, true)
			_ = ty.Compare(v, v)
		}); got != 0 {
			t.Errorf("%s: %v allocations", ty, got)
		}
	}
}

func BenchmarkAppendKey(b *testing.B) {
	buf := make([]byte, 0, 64)
	for _, ty := range []*Type{TInt, TTimeUUID, TText} {
		v := sample(ty)
		b.Run(ty.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendKey(buf[:0], ty, v, false)
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	for _, ty := range []*Type{TInt, TTimeUUID, TText} {
		v := sample(ty)
		b.Run(ty.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ty.Compare(v, v)
			}
		})
	}
}

func sample(ty *Type) []byte {
	text := map[Kind]string{
		Int: "42", TimeUUID: "50554d6e-29bb-11e5-b345-feff819cdc9f",
		Varchar: "an aggregate id of usual length",
	}[ty.Kind]
	v, err := ty.FromText(text)
	if err != nil {
		panic(err)
	}
	return v
}
