package jsonform

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Valid reports whether a value is JSON in UTF-8. It accepts what json.Valid accepts in
// UTF-8, duplicate names and escaped halves of surrogate pairs too, in a fraction of the
// time.
func Valid(value []byte) bool {
	return utf8.Valid(value) && jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}
