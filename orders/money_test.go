package orders

import (
	"bytes"
	"encoding/json"
	"math/big"
	"testing"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

func money(t testing.TB, s string) Money {
	t.Helper()
	m, err := ParseMoney(s)
	if err != nil {
		t.Fatalf("ParseMoney(%q) = %v", s, err)
	}
	return m
}

func TestParseMoney(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"0", "0.00", "2.50", "3.39", "999999999999.999999", "13541.33"} {
		if got := money(t, s).String(); got != s {
			t.Errorf("ParseMoney(%q).String() = %q", s, got)
		}
	}
	for _, s := range []string{"", "-1", "+1", "1e3", "1E1000000000", "01", ".5", "1.", "1.2345678", "1234567890123", "1,5", " 1", "1\n", "NaN", "0x1", "١"} {
		if m, err := ParseMoney(s); err == nil {
			t.Errorf("ParseMoney(%q) = %s, want an error", s, m)
		}
	}
}

func TestMoney_Arithmetic(t *testing.T) {
	t.Parallel()
	var total Money
	for range 10 {
		total = total.Add(money(t, "0.10"))
	}
	if total.String() != "1.00" {
		t.Errorf("ten times 0.10 = %s, want 1.00", total)
	}
	if got := money(t, "3.39").Times(6).String(); got != "20.34" {
		t.Errorf("6 × 3.39 = %s, want 20.34", got)
	}
	if !money(t, "2.5").Equal(money(t, "2.50")) {
		t.Error("2.5 differs from 2.50")
	}
}

var decimalType = gocql.NewNativeType(4, gocql.TypeDecimal)

// The reference is the driver's own decimal encoding.
func TestMoney_CQL(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"0", "1.27", "1.28", "2.55", "2.56", "327.67", "327.68", "999999999999.999999"} {
		m := money(t, s)
		got, err := gocql.Marshal(decimalType, m)
		if err != nil {
			t.Fatal(err)
		}
		unscaled := new(big.Int)
		dec, ok := new(inf.Dec).SetString(s)
		if !ok {
			t.Fatal(s)
		}
		unscaled.Set(dec.UnscaledBig())
		want, err := gocql.Marshal(decimalType, dec)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is encoded as %x, the driver has %x", s, got, want)
		}
		var back Money
		if err := gocql.Unmarshal(decimalType, want, &back); err != nil || back.String() != s {
			t.Errorf("%x is decoded as %s, %v, want %s", want, back, err, s)
		}
	}
	var null Money
	if err := null.UnmarshalCQL(nil, nil); err != nil || null.String() != "0" {
		t.Errorf("null is %s, %v", null, err)
	}
	for _, bad := range []string{"\x00", "\x00\x00\x00\x00", "\x7f\xff\xff\xff\x01", "\xff\xff\xff\xff\x01"} {
		if err := null.UnmarshalCQL(nil, []byte(bad)); err == nil {
			t.Errorf("UnmarshalCQL(%x) = nil, want an error", bad)
		}
	}
}

func TestMoney_JSON(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(money(t, "2.50"))
	if err != nil || string(b) != `"2.50"` {
		t.Errorf("Marshal() = %s, %v", b, err)
	}
	var m Money
	if err := json.Unmarshal(b, &m); err != nil || m.String() != "2.50" {
		t.Errorf("Unmarshal(%s) = %s, %v", b, m, err)
	}
	for _, bad := range []string{`2.5`, `"1e9"`, `""`, `"-1"`, `null`} {
		if err := m.UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("UnmarshalJSON(%s) = nil, want an error", bad)
		}
	}
}

func TestPrice_KeepsDigits(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`"3.390"`: "3.390", `3.390`: "3.390", `0.1000`: "0.1000", `1e5`: "1e5", `-1`: "-1"} {
		var p Price
		if err := json.Unmarshal([]byte(in), &p); err != nil || string(p) != want {
			t.Errorf("Unmarshal(%s) = %q, %v, want %q", in, p, err, want)
		}
	}
	for _, bad := range []string{`true`, `{}`, `[1]`} {
		var p Price
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("Unmarshal(%s) = %q, want an error", bad, p)
		}
	}
}

// ParseMoney accepts the same texts as the pattern of the description, and String writes the same
// text as the decimal library.
func TestParseMoney_IsThePattern(t *testing.T) {
	t.Parallel()
	for _, whole := range []string{"", "0", "00", "07", "7", "10", "-0", "+1", "999999999999", "1000000000000", "1e1", "٣", "1_0"} {
		for _, rest := range []string{"", ".", ".0", ".5", ".05", ".50", ".000001", ".999999", ".1234567", ".1.2", ".-1", "..", ".e1", "\n", ".1\n"} {
			s := whole + rest
			m, err := ParseMoney(s)
			if (err == nil) != moneyText.MatchString(s) {
				t.Errorf("ParseMoney(%q) = %v, %v; the pattern matches: %t", s, m, err, moneyText.MatchString(s))
			}
			if err != nil {
				continue
			}
			for _, n := range []int{0, 1, 7, 1_000_000} {
				for _, got := range []Money{m.Times(n), m.Times(n).Add(m), {m.d.Mul(m.d)}, {m.d.Neg()}, {m.d.Shift(4)}} {
					if want := got.d.StringFixed(max(0, -got.d.Exponent())); got.String() != want {
						t.Errorf("%q times %d: %s, want %s", s, n, got, want)
					}
				}
			}
		}
	}
}
