package jsonform

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Descriptions of valid values, for Take.
const (
	WantText = "a text"
	WantTime = "a time such as 2011-10-14T12:00:00Z"
)

// Decode decodes a body that Check has accepted. A valid body needs a single strict pass
// into T. Only for an invalid one explain reads the fields with Take and Rest, to report
// every error. valid validates the result; nil accepts any.
//
// The error is an *InvalidError with every bad field: of a wrong type,
// unknown fields and values that valid refuses.
func Decode[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	if valid == nil {
		valid = func(*T) error { return nil }
	}
	var v T
	// Names are case-sensitive: encoding/json would accept "Country" for "country", and
	// use the last of both. Check has already refused duplicates; a second check would
	// double the cost of a body with many names.
	strict := jsonv2.JoinOptions(jsonv2.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true))
	err := jsonv2.Unmarshal(body, &v, strict)
	if err != nil { // only such a body pays for other forms of whole numbers
		var again T
		err = jsonv2.Unmarshal(body, &again, strict, WholeNumbers)
		v = again
	}
	if err == nil && !IsNull(body) {
		return v, valid(&v)
	}
	var bad InvalidError
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		bad.Add("", "must be a JSON object")
		return v, &bad
	}
	v = explain(fields, &bad)
	bad.Merge(valid(&v))
	if len(bad.Fields) == 0 { // only the strict pass refused it
		bad.Add("", "is invalid")
	}
	return v, &bad
}

// maxValid bounds the bodies of DecodeValid: what Check has not accepted may take many times its
// size when it is decoded.
const maxValid = 16 << 10

// DecodeValid decodes a short body without Check, in one pass that refuses the same duplicates,
// text that is not UTF-8 and unknown members. It returns false for a body that Check or Decode
// could refuse, which they then do by every bad field. Only a T whose own bounds are at most the
// bounds of Check may be decoded so, and valid must enforce them for lists.
func DecodeValid[T any](body []byte, valid func(*T) error) (v T, ok bool) {
	if len(body) > maxValid || IsNull(body) || jsonv2.Unmarshal(body, &v, jsonv2.RejectUnknownMembers(true)) != nil || valid(&v) != nil {
		var none T
		return none, false
	}
	return v, true
}

// IsNull reports whether a value is null.
func IsNull(body []byte) bool { return string(bytes.TrimSpace(body)) == "null" }

// Take decodes field name of an object into dst and removes it. Null leaves dst
// unchanged. A value of another type adds an error with the path below at and the valid
// values.
func Take[T any](fields map[string]json.RawMessage, bad *InvalidError, at, name, want string, dst *T) {
	raw, ok := fields[name]
	delete(fields, name)
	if ok && jsonv2.Unmarshal(raw, dst, WholeNumbers) != nil {
		var zero T
		*dst = zero
		bad.Add(at+name, "must be "+want)
	}
}

// Rest adds an error for each remaining field.
func Rest(fields map[string]json.RawMessage, bad *InvalidError, at string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		bad.Add(at+Clip(name), "is not a known field")
	}
}
