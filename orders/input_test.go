package orders

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

func invalidFields(err error) []string {
	var bad *InvalidError
	if !errors.As(err, &bad) {
		return nil
	}
	var out []string
	for _, f := range bad.Fields {
		out = append(out, f.Field)
	}
	return out
}

func TestNewOrder_ValidateNamesEveryField(t *testing.T) {
	t.Parallel()
	late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	text := func(n int) string { return strings.Repeat("ü", n) }
	tests := []struct {
		name   string
		change func(*NewOrder)
		want   []string
	}{
		{"good", func(*NewOrder) {}, nil},
		{"zero", func(n *NewOrder) { *n = NewOrder{} }, []string{"country", "currency", "lines"}},
		{"everything", func(n *NewOrder) {
			*n = NewOrder{
				Invoice: text(65), CustomerID: new(string), Country: "a\nb", PlacedAt: &late, Currency: "gbp",
				Lines: []NewLine{{}, {SKU: text(65), Description: text(201), Quantity: MaxQuantity + 1, UnitPrice: "1e3"}},
			}
		}, []string{
			"invoice", "customer_id", "country", "placed_at", "currency",
			"lines[0].sku", "lines[0].quantity", "lines[0].unit_price",
			"lines[1].sku", "lines[1].description", "lines[1].quantity", "lines[1].unit_price",
		}},
		{"limits are characters", func(n *NewOrder) { n.Invoice, n.Country, n.Lines[0].Description = text(64), text(100), text(200) }, nil},
		{"no such currency", func(n *NewOrder) { n.Currency = "QQQ" }, []string{"currency"}},
		{"blank", func(n *NewOrder) { n.Country = "  " }, []string{"country"}},
		{"invalid UTF-8", func(n *NewOrder) { n.Lines[1].SKU = "\xff" }, []string{"lines[1].sku"}},
		{"too many lines", func(n *NewOrder) { n.Lines = slices.Repeat(n.Lines, MaxLines) }, []string{"lines"}},
		{"free of charge", func(n *NewOrder) { n.Lines[0].UnitPrice = "0.00" }, nil},
		{"negative", func(n *NewOrder) { n.Lines[0].UnitPrice, n.Lines[0].Quantity = "-1", -1 }, []string{"lines[0].quantity", "lines[0].unit_price"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := testNewOrder()
			tt.change(&n)
			if got := invalidFields(n.Validate()); !slices.Equal(got, tt.want) {
				t.Errorf("Validate() names %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDecodeOrder_NamesEveryField(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		want       []string
	}{
		{"good", `{"country":"EIRE","currency":"EUR","customer_id":null,"lines":[{"sku":"a","quantity":1,"unit_price":1.50}]}`, nil},
		{"empty object", `{}`, []string{"country", "currency", "lines"}},
		{"not an object", `[1]`, []string{""}},
		{"null", `null`, []string{""}},
		{"types", `{"invoice":1,"country":true,"placed_at":"yesterday","currency":"EUR","lines":{"sku":1}}`, []string{"invoice", "country", "placed_at", "lines"}},
		{
			"types in lines and values elsewhere", `{"country":"","currency":"eur","lines":[7,{"sku":1,"quantity":"6","unit_price":true},{"sku":"a","quantity":1.5,"unit_price":"x"}]}`,
			[]string{"lines[0]", "lines[1].sku", "lines[1].quantity", "lines[1].unit_price", "lines[2].quantity", "country", "currency", "lines[2].unit_price"},
		},
		{
			"unknown fields", `{"country":"EIRE","currency":"EUR","total":"1","lines":[{"sku":"a","quantity":1,"unit_price":"1","price":2}]}`,
			[]string{"total", "lines[0].price"},
		},
		{"a name twice", `{"country":"","country":"EIRE","currency":"EUR","lines":[{"sku":"a","quantity":1,"unit_price":"1"}]}`, []string{"country"}},
		{"a name twice, once escaped", `{"country":"EIRE","currency":"EUR","lines":[{"sku":"a","\u0073ku":"b","quantity":1,"unit_price":"1"}]}`, []string{"lines[0].sku"}},
		{"a name in other letters", `{"country":"EIRE","Country":"Oman","currency":"EUR","lines":[{"sku":"a","quantity":1,"unit_price":"1"}]}`, []string{"Country"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeOrder([]byte(tt.body))
			if got := invalidFields(err); !slices.Equal(got, tt.want) || (err == nil) != (tt.want == nil) {
				t.Errorf("decodeOrder() names %q (%v), want %q", got, err, tt.want)
			}
		})
	}
	for _, body := range []string{``, `{`, `{"country":}`, `{} {}`, `{}]`, "\x00"} {
		var syntax *jsonform.SyntaxError
		if _, err := decodeOrder([]byte(body)); !errors.As(err, &syntax) {
			t.Errorf("decodeOrder(%q) error = %v, want a *jsonform.SyntaxError", body, err)
		}
	}
}

func TestDecodeCancellation(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, ` `, `{}`, `{"credit_note":"C1","reason":"late","cancelled_at":"2010-12-06T14:55:00Z"}`} {
		if _, err := decodeCancellation([]byte(body)); err != nil {
			t.Errorf("decodeCancellation(%q) = %v", body, err)
		}
	}
	_, err := decodeCancellation([]byte(`{"credit_note":1,"reason":"` + strings.Repeat("x", 201) + `","cancelled_at":"x","at":1}`))
	if got, want := invalidFields(err), []string{"credit_note", "cancelled_at", "at", "reason"}; !slices.Equal(got, want) {
		t.Errorf("decodeCancellation() names %q, want %q", got, want)
	}
}

// A body that the strict pass rejects has an explanation, and an accepted body
// is valid.
func FuzzDecodeOrder(f *testing.F) {
	f.Add([]byte(`{"country":"EIRE","currency":"EUR","lines":[{"sku":"a","quantity":1,"unit_price":1.50}]}`))
	f.Add([]byte(`{"lines":[null,{"sku":1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		n, err := decodeOrder(body)
		var syntax *jsonform.SyntaxError
		switch {
		case err == nil:
			if err := n.Validate(); err != nil {
				t.Fatalf("accepted %q, which is invalid: %v", body, err)
			}
			if _, err := n.build(identity{createdAt: testTime}); err != nil {
				t.Fatalf("accepted %q, of which no order can be built: %v", body, err)
			}
		case errors.As(err, &syntax):
		case len(invalidFields(err)) == 0:
			t.Fatalf("refused %q without naming a field: %v", body, err)
		}
	})
}

func TestValidateKey(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "a", "create-536365", strings.Repeat("x", MaxKey)} {
		if err := validateKey(key); err != nil {
			t.Errorf("validateKey(%q) = %v", key, err)
		}
	}
	for _, key := range []string{"a b", "ü", "\x00", strings.Repeat("x", MaxKey+1)} {
		if err := validateKey(key); err == nil {
			t.Errorf("validateKey(%q) = nil, want an error", key)
		}
	}
}

func TestTraceContext(t *testing.T) {
	t.Parallel()
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tests := []struct {
		parent, state string
		want          int
	}{
		{good, "", 1},
		{good, "vendor=1", 2},
		{good, "a\nb", 1},
		{"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", "", 1},
		{"", "vendor=1", 0},
		{good + "-more", "", 0},
		{"ff" + good[2:], "", 0},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", 0},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "", 0},
		{strings.ToUpper(good), "", 0},
	}
	for _, tt := range tests {
		h := WriteOptions{TraceParent: tt.parent, TraceState: tt.state}.headers(t.Context())
		if len(h) != tt.want {
			t.Errorf("headers of %q, %q = %q, want %d", tt.parent, tt.state, h, tt.want)
		}
	}
}
