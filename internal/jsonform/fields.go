package jsonform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SyntaxError is what a body that is not one JSON value in UTF-8 gives.
type SyntaxError struct {
	// Field is what the reading had come to; empty for the body.
	Field string
	// Problem says what is wrong there.
	Problem string
}

// Error says what is wrong, and where.
func (e *SyntaxError) Error() string {
	if e.Field == "" {
		return "body is not JSON: " + e.Problem
	}
	return "body is not JSON: " + Plain(e.Field) + ": " + e.Problem
}

// FieldError is one bad field of a request.
type FieldError struct {
	// Field is its path in the body, such as lines[2].quantity, or begins with
	// header. or query.; empty for the whole body.
	Field string
	// Problem says what the field must be. Neither repeats what was sent, which may
	// be a secret in the wrong place.
	Problem string
}

// MaxFieldErrors bounds what an InvalidError lists: a small body can be wrong in
// tens of thousands of places, and nobody reads that many.
const MaxFieldErrors = 100

// InvalidError lists every bad field of a request. Of more than MaxFieldErrors it
// lists the first and says last that there are more. The zero value lists none.
type InvalidError struct {
	Fields []FieldError
}

// Error names every field.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = strings.TrimSpace(f.Field + " " + f.Problem)
	}
	return "invalid request: " + strings.Join(parts, "; ")
}

// Invalid is an *InvalidError of one field.
func Invalid(field, problem string) error {
	return &InvalidError{[]FieldError{{Field: field, Problem: problem}}}
}

// Add adds a bad field.
func (e *InvalidError) Add(field, problem string) {
	switch n := len(e.Fields); {
	case n < MaxFieldErrors:
		e.Fields = append(e.Fields, FieldError{Field: field, Problem: problem})
	case n == MaxFieldErrors:
		e.Fields = append(e.Fields, FieldError{Problem: fmt.Sprintf("has more bad fields than the %d listed", MaxFieldErrors)})
	}
}

// Full tells whether what more is wrong is not listed.
func (e *InvalidError) Full() bool { return len(e.Fields) > MaxFieldErrors }

// OrNil is e, or nil if it lists nothing.
func (e *InvalidError) OrNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

// Merge adds the fields of err, if it is an *InvalidError, that e has not named
// yet: a value of the wrong type is not also too short.
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

// Location is a field's path as huma writes it.
func Location(field string) string {
	switch {
	case field == "":
		return "body"
	case strings.HasPrefix(field, "header."), strings.HasPrefix(field, "query."):
		return Plain(field)
	}
	return Plain("body." + field)
}

// maxPlain bounds a path that is told, in bytes.
const maxPlain = 100

// Plain is as much of a path as may be told: the names of fields as the APIs have
// them. What a caller called a member that is none of these is cut off.
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
