package orders

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

func native(t gocql.Type) gocql.TypeInfo { return gocql.NewNativeType(4, t) }

var linesType = gocql.CollectionType{
	NativeType: gocql.NewNativeType(4, gocql.TypeList),
	Elem: gocql.TupleTypeInfo{
		NativeType: gocql.NewNativeType(4, gocql.TypeTuple),
		Elems:      []gocql.TypeInfo{native(gocql.TypeVarchar), native(gocql.TypeVarchar), native(gocql.TypeInt), native(gocql.TypeDecimal)},
	},
}

func testLines(t testing.TB) Lines {
	return Lines{
		{SKU: "84029E", Description: "RED WOOLLY HOTTIE WHITE HEART.", Quantity: 6, UnitPrice: money(t, "3.39")},
		{SKU: "ü", Quantity: MaxQuantity, UnitPrice: money(t, "0")},
	}
}

// The reference is the driver's own encoding of tuples.
func TestLines_CQL(t *testing.T) {
	t.Parallel()
	ls := testLines(t)
	got, err := gocql.Marshal(linesType, ls)
	if err != nil {
		t.Fatal(err)
	}
	type tuple struct {
		SKU, Description string
		Quantity         int
		UnitPrice        *inf.Dec
	}
	var theirs []tuple
	for _, l := range ls {
		d, _ := new(inf.Dec).SetString(l.UnitPrice.String())
		theirs = append(theirs, tuple{l.SKU, l.Description, l.Quantity, d})
	}
	want, err := gocql.Marshal(linesType, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoded as %x, the driver has %x", got, want)
	}
	var back Lines
	if err := gocql.Unmarshal(linesType, want, &back); err != nil || !reflect.DeepEqual(back, ls) {
		t.Errorf("decoded as %+v, %v, want %+v", back, err, ls)
	}
	if err := back.UnmarshalCQL(nil, nil); err != nil || back != nil {
		t.Errorf("null is %v, %v", back, err)
	}
}

func FuzzLines(f *testing.F) {
	b, _ := testLines(f).MarshalCQL(nil)
	f.Add(b)
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte(strings.Repeat("\x00", 40)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var ls, again Lines
		if ls.UnmarshalCQL(nil, data) != nil {
			return
		}
		for _, l := range ls {
			if len(l.UnitPrice.String()) > 256 {
				t.Fatalf("an amount of %d digits", len(l.UnitPrice.String()))
			}
			if strings.HasPrefix(l.UnitPrice.String(), "-") {
				return // never written here
			}
		}
		b, err := ls.MarshalCQL(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalCQL(nil, b); err != nil || len(again) != len(ls) {
			t.Fatalf("read %+v, then %+v, %v", ls, again, err)
		}
		for i := range ls {
			if ls[i].SKU != again[i].SKU || ls[i].Quantity != again[i].Quantity || !ls[i].UnitPrice.Equal(again[i].UnitPrice) {
				t.Fatalf("read %+v, then %+v", ls[i], again[i])
			}
		}
	})
}
