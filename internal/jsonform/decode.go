package jsonform

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// What a field must be, for Take.
const (
	WantText = "a text"
	WantTime = "a time such as 2011-10-14T12:00:00Z"
)

// Decode reads a body that Check has passed. A good one takes a single strict
// pass into T; only a bad one is taken apart to name all that is wrong with it:
// explain reads the fields of one, with Take and Rest. valid judges what was
// read; nil takes it as it is.
//
// The error is an *InvalidError with every bad field: those of a wrong type,
// unknown ones and those that valid refuses.
func Decode[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	if valid == nil {
		valid = func(*T) error { return nil }
	}
	var v T
	// Names count as they are written: encoding/json would take "Country" for
	// "country", and of both in one body the last. That none is there twice, Check
	// has seen; to look again would double what a body of many names costs.
	err := jsonv2.Unmarshal(body, &v, jsonv2.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true))
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
	if len(bad.Fields) == 0 { // the strict pass knew better
		bad.Add("", "is not what it must be")
	}
	return v, &bad
}

// IsNull tells whether a value is null.
func IsNull(body []byte) bool { return string(bytes.TrimSpace(body)) == "null" }

// Take reads field name of an object into dst and removes it. Null leaves dst
// alone. What is not of dst's type is named, below at, with what it must be.
func Take[T any](fields map[string]json.RawMessage, bad *InvalidError, at, name, want string, dst *T) {
	raw, ok := fields[name]
	delete(fields, name)
	if ok && jsonv2.Unmarshal(raw, dst) != nil {
		var zero T
		*dst = zero
		bad.Add(at+name, "must be "+want)
	}
}

// Rest names the fields that nobody took.
func Rest(fields map[string]json.RawMessage, bad *InvalidError, at string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		bad.Add(at+Clip(name), "is not a known field")
	}
}
