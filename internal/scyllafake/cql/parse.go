// Package cql is the syntax of CQL as ScyllaDB 5.1 reads it: lexer, parser and
// syntax tree. It knows no schema.
package cql

import "errors"

// SyntaxError is a text that is not CQL; it becomes error 0x2000.
type SyntaxError struct {
	Line, Column int
	Message      string // as ScyllaDB words it, "line 1:0 no viable alternative at input 'X'"
}

func (e *SyntaxError) Error() string { return e.Message }

// Parse reads one statement, with or without a closing semicolon. Every error
// is a *SyntaxError. It is safe for concurrent use.
func Parse(text string) (Statement, error) { return nil, errors.New("not written yet") }
