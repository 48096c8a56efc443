package jsonform

import (
	"reflect"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WholeNumbers is an option of package json that decodes every form of a whole number into an
// int, int32 or int64: for JSON Schema 201.0 and 2.01e2 are the integer 201, and some programs write them.
var WholeNumbers = jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(whole[int](), whole[int32](), whole[int64]()))

func whole[T int | int32 | int64]() *jsonv2.Unmarshalers {
	return jsonv2.UnmarshalFromFunc(func(dec *jsontext.Decoder, n *T) error {
		if dec.PeekKind() != '0' {
			return jsonv2.SkipFunc
		}
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		v, err := strconv.ParseInt(digits(string(text)), 10, reflect.TypeFor[T]().Bits())
		*n = T(v)
		return err
	})
}

// digits returns a whole number in decimal digits, and another one as it is.
func digits(number string) string {
	mantissa, exponent := number, 0
	if at := strings.IndexAny(number, "eE"); at >= 0 {
		var err error
		mantissa = number[:at]
		if exponent, err = strconv.Atoi(number[at+1:]); err != nil || exponent > 20 || exponent < -20 { // no int is that long
			return number
		}
	}
	before, after, _ := strings.Cut(mantissa, ".")
	all := before + after + strings.Repeat("0", max(0, exponent-len(after)))
	point := len(before) + exponent
	if point <= 0 || strings.Trim(all[min(point, len(all)):], "0") != "" {
		return number
	}
	return all[:point]
}
