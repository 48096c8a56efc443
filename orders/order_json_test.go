package orders

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

// encode writes what encoding/json would by the tags of Order, with and without optional members.
func TestOrder_EncodesByItsTags(t *testing.T) {
	t.Parallel()
	at := time.Date(2011, 10, 14, 12, 0, 0, 125_000_000, time.UTC)
	customer := "\"quoted\" \\ <&> \u2028 \x00\t é"
	price, err := ParseMoney("0.05")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Order{
		{},
		{
			ID: gocql.UUID{1, 0xfe}, Version: 1 << 40, Status: StatusShipped, Invoice: "7", CustomerID: &customer, Country: "x",
			Address:  &Address{Name: "n", Street: "s", City: "c", Region: "r", Postcode: "p"},
			PlacedAt: at, Currency: "GBP", Lines: Lines{{SKU: "a", Description: "b", Quantity: 3, UnitPrice: price}, {SKU: "z"}}, Total: price.Times(3),
			CreatedAt: at, UpdatedAt: at, ConfirmedAt: &at, ShippedAt: &at, Carrier: "v", Tracking: "t", CancelledAt: &at, CreditNote: "n", CancelReason: "w",
		},
		{Address: &Address{Name: "n"}, Lines: Lines{}, PlacedAt: at.Truncate(time.Hour)},
	} {
		if o.Lines == nil {
			o.Lines = Lines{} // as stored orders have, and null is no list
		}
		got, err := o.encode()
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(&o)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(unmarshalAny(t, got), unmarshalAny(t, want)) {
			t.Errorf("encode() = %s, want %s", got, want)
		}
	}
	if got, err := (&Order{Lines: Lines{{Description: "a\u2028b\u2029c"}}}).encode(); err != nil || !bytes.Contains(got, []byte(`"a\u2028b\u2029c"`)) {
		t.Errorf("encode() = %s, %v, want escaped line separators", got, err)
	}
	if _, err := (&Order{PlacedAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}).encode(); err == nil {
		t.Error("a year of five digits is no error")
	}
}

func unmarshalAny(t *testing.T, b []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return v
}

// The whole of a created order in the response is the payload of its event, and its links.
func TestOrderBody_EncodesItsLinks(t *testing.T) {
	t.Parallel()
	o := Order{ID: gocql.UUID{7}, Lines: Lines{}}
	got, err := (&orderBody{Order: o}).EncodeJSON()
	if err != nil {
		t.Fatal(err)
	}
	type described orderBody // without its methods
	want, err := json.Marshal(described{Order: o, Links: linksTo(o.ID)})
	if err != nil || !reflect.DeepEqual(unmarshalAny(t, got), unmarshalAny(t, want)) {
		t.Errorf("EncodeJSON() = %s, want %s, %v", got, want, err)
	}
}
