package cql

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError means that a text is not CQL; it becomes error 0x2000.
type SyntaxError struct {
	// Line counts from 1, Column from 0 in characters. At the end of the text
	// Column is 0, as in ScyllaDB.
	Line, Column int
	Message      string // as in ScyllaDB, "line 1:0 no viable alternative at input 'X'"
}

func (e *SyntaxError) Error() string { return e.Message }

// ScyllaDB's messages come from ANTLR's C++ runtime, which distinguishes these cases
// (recorded from a node, and discussed in scylladb/scylladb issue 1703):
//
//   - no rule begins like that: "no viable alternative at input 'X'"
//   - one certain token is required, and comes right after the next one:
//     "extraneous input 'X' expecting <invalid>"
//   - one certain token is required, and the next one may follow it:
//     "missing ')' at '<missing '"
//   - one certain token is required, and neither: " : syntax error...\n"

// noViable means that no rule of the grammar begins here with the next token.
func (p *cursor) noViable() *SyntaxError { return p.noViableAt(p.pos) }

// noViableAt is noViable for the token where the decision was made.
func (p *cursor) noViableAt(pos int) *SyntaxError {
	return p.errorAt(pos, " no viable alternative at input '"+p.display(pos)+"'")
}

// mismatch means that want is required. follow contains the tokens after want; only
// where it is known can the error be one of a missing token.
func (p *cursor) mismatch(want kind, follow kindSet) *SyntaxError {
	switch {
	case p.kind() != tEOF && p.peek(1) == want:
		return p.errorAt(p.pos, " extraneous input '"+p.display(p.pos)+"' expecting <invalid>")
	case p.kind() != tEOF && follow[p.kind()]:
		return p.errorAt(p.pos, " missing "+string(want)+" at '<missing '")
	default:
		return p.errorAt(p.pos, "  : syntax error...\n")
	}
}

// refuse returns an error of ScyllaDB's own, which has no position in its text.
func (p *cursor) refuse(message string) *SyntaxError {
	e := p.errorAt(p.pos, "")
	e.Message = message
	return e
}

// display formats a token as in error messages.
func (p *cursor) display(pos int) string {
	t := p.toks[pos]
	switch t.kind {
	case tEOF:
		return "<EOF>"
	case tString, tQuoted:
		return p.unquote(t)
	default:
		return p.text(t)
	}
}

func (p *cursor) errorAt(pos int, message string) *SyntaxError {
	t := p.toks[pos]
	e := errorAt(p.src, int(t.start), message)
	if t.kind == tEOF {
		e = &SyntaxError{Line: e.Line, Message: "line " + strconv.Itoa(e.Line) + ":0" + message}
	}
	return e
}

// errorAt returns an error at a byte offset of src.
func errorAt(src string, offset int, message string) *SyntaxError {
	before := src[:offset]
	line := 1 + strings.Count(before, "\n")
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return &SyntaxError{
		Line: line, Column: column,
		Message: "line " + strconv.Itoa(line) + ":" + strconv.Itoa(column) + message,
	}
}
