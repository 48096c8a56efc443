package orders

import (
	"errors"
	"testing"
)

func TestMinorUnits(t *testing.T) {
	t.Parallel()
	// From ISO 4217's list one.
	for code, want := range map[string]int{"GBP": 2, "EUR": 2, "USD": 2, "JPY": 0, "KRW": 0, "CLP": 0, "UGX": 0, "BHD": 3, "KWD": 3, "IQD": 3, "TND": 3, "CLF": 4, "HUF": 2, "LAK": 2} {
		if got, ok := minorUnits(code); !ok || got != want {
			t.Errorf("minorUnits(%s) = %d, %v, want %d", code, got, ok, want)
		}
	}
	for _, code := range []string{"", "gbp", "XXX", "XTS", "XAU", "DEM", "ZZZ", "GGP", "BYR", "EURO"} {
		if got, ok := minorUnits(code); ok {
			t.Errorf("minorUnits(%s) = %d, want none", code, got)
		}
	}
	if n := len(Currencies()); n < 145 || n > 175 {
		t.Errorf("%d currencies, ISO 4217 has some 155", n)
	}
}

func TestNewOrder_PricesInMinorUnits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ currency, price, want, total string }{
		{"GBP", "3", "3.00", "9.00"},
		{"GBP", "3.390000", "3.39", "10.17"},
		{"JPY", "120", "120", "360"},
		{"JPY", "120.00", "120", "360"},
		{"KWD", "0.5", "0.500", "1.500"},
		{"GBP", "3.391", "", ""},
		{"JPY", "0.5", "", ""},
		{"KWD", "0.0001", "", ""},
	} {
		n := testNewOrder()
		n.Currency, n.Lines = tt.currency, []NewLine{{SKU: "a", Quantity: 3, UnitPrice: Price(tt.price)}}
		err := n.Validate()
		var bad *InvalidError
		if tt.want == "" {
			if !errors.As(err, &bad) || bad.Fields[0].Field != "lines[0].unit_price" {
				t.Errorf("%s %s: %v, want the price rejected", tt.price, tt.currency, err)
			}
			continue
		}
		o, buildErr := n.build(identity{createdAt: testTime})
		if err != nil || buildErr != nil || o.Lines[0].UnitPrice.String() != tt.want || o.Total.String() != tt.total {
			t.Errorf("%s %s = %+v, %v, %v, want %s and %s", tt.price, tt.currency, o, err, buildErr, tt.want, tt.total)
		}
	}
}
