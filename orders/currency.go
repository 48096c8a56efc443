package orders

import (
	"slices"

	iso4217 "github.com/Rhymond/go-money"
	"golang.org/x/text/currency"
)

// minorUnits returns the number of decimal places of a currency by ISO 4217. It
// returns false if code is not a currency in use. Precious metals and the like,
// which have no minor unit, are not currencies.
//
// It combines two tables: golang.org/x/text lists legal tender but has the
// display digits of CLDR (0 for the Iraqi dinar); go-money has the digits of
// ISO 4217 but also withdrawn and non-standard currencies.
func minorUnits(code string) (int, bool) {
	c := iso4217.GetCurrency(code)
	if c == nil || c.Code != code || !tender[code] {
		return 0, false
	}
	return c.Fraction, true
}

// tender contains the currencies in use: the ones that x/text has, newer ones, and units
// that x/text counts as funds.
var tender = func() map[string]bool {
	m := make(map[string]bool)
	for it := currency.Query(); it.Next(); {
		m[it.Unit().String()] = true
	}
	for _, code := range []string{"CLF", "MRU", "SLE", "SVC", "VES", "XCG"} {
		m[code] = true
	}
	return m
}()

// Currencies are the codes of all currencies that an order may be in.
func Currencies() []string {
	var codes []string
	for code := range tender {
		if _, ok := minorUnits(code); ok {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	return codes
}
