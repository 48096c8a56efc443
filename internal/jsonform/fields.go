package jsonform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SyntaxError is the error of a body that is not one JSON value in UTF-8.
type SyntaxError struct {
	// Field is the field at the error; empty for the body.
	Field string
	// Problem is the error at that field.
	Problem string
}

// Error returns the problem and the field.
func (e *SyntaxError) Error() string {
	if e.Field == "" {
		return "body is not JSON: " + e.Problem
	}
	return "body is not JSON: " + Plain(e.Field) + ": " + e.Problem
}

// FieldError is one invalid field of a request.
type FieldError struct {
	// Field is its path in the body, such as lines[2].quantity, or begins with
	// header. or query.; empty for the whole body.
	Field string
	// Problem describes valid values. Neither repeats the value, which may be a misplaced
	// secret.
	Problem string
}

// MaxFieldErrors bounds the fields of an InvalidError, because a small body can have tens
// of thousands of errors.
const MaxFieldErrors = 100

// InvalidError lists every invalid field of a request. Of more than MaxFieldErrors it
// lists the first, and its last entry reports that there are more. The zero value lists
// none.
type InvalidError struct {
	Fields []FieldError
}

// Error returns the problems of all fields.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = strings.TrimSpace(f.Field + " " + f.Problem)
	}
	return "invalid request: " + strings.Join(parts, "; ")
}

// Invalid returns an *InvalidError of one field.
func Invalid(field, problem string) error {
	return &InvalidError{[]FieldError{{Field: field, Problem: problem}}}
}

// Add adds an invalid field.
func (e *InvalidError) Add(field, problem string) {
	switch n := len(e.Fields); {
	case n < MaxFieldErrors:
		e.Fields = append(e.Fields, FieldError{Field: field, Problem: problem})
	case n == MaxFieldErrors:
		e.Fields = append(e.Fields, FieldError{Problem: fmt.Sprintf("has more invalid fields than the %d listed", MaxFieldErrors)})
	}
}

// Full reports whether further errors are not listed.
func (e *InvalidError) Full() bool { return len(e.Fields) > MaxFieldErrors }

// OrNil returns e, or nil if it lists no field.
func (e *InvalidError) OrNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

// Merge adds the fields of err, if it is an *InvalidError, that e does not contain yet: a
// value of the wrong type is not also too short.
func (e *InvalidError) Merge(err error) {
	var other *InvalidError
	if !errors.As(err, &other) {
		return
	}
	for _, f := range other.Fields {
		if !slices.ContainsFunc(e.Fields, func(g FieldError) bool { return g.Field == f.Field }) {
			e.Fields = append(e.Fields, f)
		}
	}
}

// Location returns the path of the field in huma's form.
func Location(field string) string {
	switch {
	case field == "":
		return "body"
	case strings.HasPrefix(field, "header."), strings.HasPrefix(field, "query."):
		return Plain(field)
	}
	return Plain("body." + field)
}

// maxPlain bounds a path in an error, in bytes.
const maxPlain = 100

// Plain returns the part of a path that an error may repeat: the names of fields of the
// APIs. Names that a caller chose are cut off.
func Plain(path string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.[]-", r)
	}
	end := strings.IndexFunc(path, odd)
	if end < 0 {
		end = len(path)
	}
	if end = min(end, maxPlain); end < len(path) {
		return path[:end] + "…"
	}
	return path
}
