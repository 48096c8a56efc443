package orders

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a body's form, whatever its fields are. What this API takes has four
// levels and eight members at most; the rest is room for naming what is unknown.
const (
	maxDepth   = 8
	maxMembers = 32
)

// syntaxError is what a body that is not one JSON value in UTF-8 gives.
type syntaxError struct {
	// field is what the reading had come to; empty for the body.
	field   string
	problem string
}

func (e *syntaxError) Error() string {
	if e.field == "" {
		return "body is not JSON: " + e.problem
	}
	return "body is not JSON: " + e.field + ": " + e.problem
}

// checkForm passes once over a body before anything is made of it, so that a
// hostile one costs the reading of its bytes and no more: no nesting beyond
// maxDepth, no object of more than maxMembers members, no list of more than
// MaxLines items. It refuses what readers of JSON understand in different ways:
// a name that an object has twice, and text that is not UTF-8.
//
// The error is a *syntaxError or an *InvalidError of one field.
func checkForm(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	for {
		if kind := dec.PeekKind(); (kind == '{' || kind == '[') && dec.StackDepth() == maxDepth {
			return invalidForm(dec.StackPointer(), fmt.Sprintf("is nested deeper than %d levels", maxDepth))
		}
		if _, err := dec.ReadToken(); err != nil {
			return formError(err, len(body))
		}
		depth := dec.StackDepth()
		if depth == 0 {
			break
		}
		switch in, n := dec.StackIndex(depth); {
		case in == '[' && n > MaxLines:
			return invalidForm(dec.StackPointer().Parent(), fmt.Sprintf("must have at most %d items", MaxLines))
		case in == '{' && n > 2*maxMembers: // names and values count
			return invalidForm(dec.StackPointer().Parent(), fmt.Sprintf("must have at most %d members", maxMembers))
		}
	}
	switch _, err := dec.ReadToken(); {
	case err == nil:
		return &syntaxError{problem: "more follows after the JSON value"}
	case !errors.Is(err, io.EOF):
		return formError(err, len(body))
	}
	return nil
}

func formError(err error, size int) error {
	if errors.Is(err, io.EOF) {
		return &syntaxError{problem: "it is empty"}
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &syntaxError{problem: clip(err.Error())}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalidForm(syntax.JSONPointer, "is there more than once")
	}
	problem := clip(syntax.Err.Error())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		problem = "it ends too early"
	}
	return &syntaxError{field: fieldAt(syntax.JSONPointer), problem: problem + ", at byte " + strconv.FormatInt(min(syntax.ByteOffset, int64(size)), 10)}
}

func invalidForm(at jsontext.Pointer, problem string) error {
	var bad InvalidError
	bad.add(fieldAt(at), problem, nil)
	return &bad
}

// fieldAt writes a JSON pointer as the fields of errors are written:
// lines[2].sku for /lines/2/sku.
func fieldAt(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		_, notIndex := strconv.Atoi(name)
		switch {
		case b.Len() > 0 && notIndex == nil:
			b.WriteString("[" + clip(name) + "]")
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(clip(name))
	}
	return b.String()
}
