package orders

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/shopspring/decimal"
)

// Money is an exact decimal amount. It preserves the number of decimal places:
// 2.50 stays 2.50. The zero value is 0.
type Money struct{ d decimal.Decimal }

// moneyText is the pattern of an amount. It excludes exponents, which would let
// a few bytes represent a number of any size.
var moneyText = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?$`)

var errMoney = errors.New("want a plain decimal number such as 12.50, not negative, at most 12 digits before and 6 after the point")

// maxWhole and maxPlaces bound the digits of an amount before and after the point. Its digits
// fit an int64.
const maxWhole, maxPlaces = 12, 6

// ParseMoney reads a plain decimal number, which matches moneyText.
func ParseMoney(s string) (Money, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if len(whole) < 1 || len(whole) > maxWhole || len(whole) > 1 && whole[0] == '0' || point && len(fraction) < 1 || len(fraction) > maxPlaces {
		return Money{}, errMoney
	}
	n := int64(0)
	for _, part := range [...]string{whole, fraction} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return Money{}, errMoney
			}
			n = 10*n + int64(part[i]-'0')
		}
	}
	return Money{decimal.New(n, -int32(len(fraction)))}, nil
}

// Fixed returns m with the given number of decimal places. It returns false if
// m needs more.
func (m Money) Fixed(places int) (Money, bool) {
	if m.d.Exponent() == -int32(places) {
		return m, true
	}
	r := m.d.Truncate(int32(places))
	if !r.Equal(m.d) {
		return m, false
	}
	if missing := int32(places) + r.Exponent(); missing > 0 {
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(missing)), nil)
		r = decimal.NewFromBigInt(ten.Mul(ten, r.Coefficient()), -int32(places))
	}
	return Money{r}, true
}

// Add returns m + n.
func (m Money) Add(n Money) Money { return Money{m.d.Add(n.d)} }

// Times returns m for n pieces.
func (m Money) Times(n int) Money { return Money{m.d.Mul(decimal.NewFromInt(int64(n)))} }

// Equal compares amounts; 2.5 equals 2.50.
func (m Money) Equal(n Money) bool { return m.d.Equal(n.d) }

// String writes all decimal places.
func (m Money) String() string { return string(m.appendText(nil)) }

// appendText appends all decimal places to b.
func (m Money) appendText(b []byte) []byte {
	places := int(-m.d.Exponent())
	if places < 0 || m.d.Sign() < 0 || m.d.NumDigits() > maxWhole+maxPlaces {
		return append(b, m.d.StringFixed(int32(max(0, places)))...)
	}
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], m.d.CoefficientInt64(), 10)
	if places == 0 {
		return append(b, text...)
	}
	whole := max(0, len(text)-places)
	if whole == 0 {
		b = append(b, '0')
	}
	b = append(append(b, text[:whole]...), '.')
	for range places - len(text) {
		b = append(b, '0')
	}
	return append(b, text[whole:]...)
}

// MarshalJSON writes a string, so that no reader makes a float of it.
func (m Money) MarshalJSON() ([]byte, error) {
	return append(m.appendText(append(make([]byte, 0, 24), '"')), '"'), nil
}

// UnmarshalJSON reads a string in the form of MarshalJSON. A total can have
// more digits than ParseMoney accepts, so only the form is checked.
func (m *Money) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || len(b) > 64 || b[0] != '"' || b[len(b)-1] != '"' || !storedMoney.Match(b[1:len(b)-1]) {
		return errors.New("orders: an amount must be a string with a decimal number")
	}
	d, err := decimal.NewFromString(string(b[1 : len(b)-1]))
	m.d = d
	return err
}

var storedMoney = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// Schema describes the JSON form.
func (Money) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: storedMoney.String(), Description: "A decimal number", Examples: []any{"12.50"}}
}

// MarshalCQL encodes m as CQL decimal: the scale, then the unscaled value as a
// big-endian two's complement.
func (m Money) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return m.appendCQL(nil), nil }

func (m Money) appendCQL(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(-m.d.Exponent()))
	return append(b, twosComplement(m.d.Coefficient())...)
}

// UnmarshalCQL decodes a CQL decimal; null is 0.
func (m *Money) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	if len(data) == 0 {
		m.d = decimal.Decimal{}
		return nil
	}
	if len(data) < 5 {
		return fmt.Errorf("orders: a decimal of %d bytes", len(data))
	}
	scale := int32(binary.BigEndian.Uint32(data))
	// This package does not write such a scale, and formatting it would take as
	// many bytes as the scale.
	if scale < 0 || scale > 64 || len(data) > 64 {
		return fmt.Errorf("orders: a decimal with scale %d and %d bytes is no amount", scale, len(data)-4)
	}
	n := new(big.Int).SetBytes(data[4:])
	if data[4]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*(len(data)-4))))
	}
	m.d = decimal.NewFromBigInt(n, -scale)
	return nil
}

// twosComplement is the shortest encoding of n; amounts are never negative.
func twosComplement(n *big.Int) []byte {
	b := n.Bytes()
	if len(b) == 0 || b[0]&0x80 != 0 {
		return append([]byte{0}, b...)
	}
	return b
}
