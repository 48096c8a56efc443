package orders

import (
	"errors"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// Price is an amount in the notation of the caller: a JSON string or number
// with its exact digits, never converted to a float. Validate checks it.
type Price string

var errPrice = errors.New("must be a string or a number")

// UnmarshalJSON accepts a string or a number.
func (p *Price) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == '"':
		text, err := jsontext.AppendUnquote(nil, b)
		*p = Price(text)
		return err
	case len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9'):
		*p = Price(b)
		return nil
	}
	return errPrice
}

// Schema describes both forms.
func (Price) Schema(huma.Registry) *huma.Schema {
	zero, most := 0.0, 999_999_999_999.0
	return &huma.Schema{
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Pattern: moneyText.String()},
			{Type: huma.TypeNumber, Minimum: &zero, Maximum: &most},
		},
		Description: "A decimal number, not negative, with at most 6 decimal places; a string preserves every digit",
		Examples:    []any{"3.39"},
	}
}
