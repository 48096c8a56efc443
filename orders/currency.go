package orders

import (
	"slices"

	iso4217 "github.com/Rhymond/go-money"
	"golang.org/x/text/currency"
)

// minorUnits returns how many decimal places amounts in a currency have, by ISO
// 4217; false means that code is no currency in use. Gold, silver and the
// like, which have no minor unit, are none.
//
// Two tables decide: golang.org/x/text knows what is legal tender but has
// CLDR's display digits (it gives the Iraqi dinar none), go-money has ISO 4217's
// digits but also currencies that are gone or never were in the standard.
func minorUnits(code string) (int, bool) {
	c := iso4217.GetCurrency(code)
	if c == nil || c.Code != code || !tender[code] {
		return 0, false
	}
	return c.Fraction, true
}

// tender are the currencies in use: those of x/text, and those that are newer
// than its table or that it counts as funds.
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
