package jsonform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds bound the form of a body, whatever its fields. All fields except Free must be
// positive.
type Bounds struct {
	// Depth is the maximum number of levels of objects and lists.
	Depth int
	// Members is the maximum number of members of an object, and Items that of a list.
	Members, Items int
	// Free names a member of the body that may be any JSON value of up to FreeDepth
	// levels, with as many members and items as fit the body. Empty for none.
	Free      string
	FreeDepth int
}

// decoders are kept for their lists of the names of an object, which grow with each name.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// empty is read at its end.
var empty = strings.NewReader("")

// Check reads a body once and enforces the bounds on nesting, members and items. Its cost
// is linear in the size of the body. It refuses what JSON parsers interpret differently:
// duplicate names and text that is not UTF-8.
//
// The error is a *SyntaxError or an *InvalidError of one field.
func Check(body []byte, b Bounds) error {
	dec := decoders.Get().(*jsontext.Decoder) //nolint:forcetypeassert // the only type in the pool
	dec.Reset(bytes.NewBuffer(body))
	defer func() {
		dec.Reset(empty) // it does not keep the body
		decoders.Put(dec)
	}()
	free := false // inside the value of b.Free
	for {
		depth := dec.StackDepth()
		most := b.Depth
		if free {
			most = 1 + b.FreeDepth
		}
		if kind := dec.PeekKind(); (kind == '{' || kind == '[') && depth == most {
			return Invalid(fieldAt(dec.StackPointer()), fmt.Sprintf("is nested deeper than %d levels", most))
		}
		token, err := dec.ReadToken()
		if err != nil {
			return formError(err, len(body))
		}
		if depth = dec.StackDepth(); depth == 0 {
			break
		}
		in, n := dec.StackIndex(depth)
		if depth == 1 && b.Free != "" && in == '{' {
			free = n%2 == 1 && token.Kind() == '"' && token.String() == b.Free
		}
		switch {
		case free && depth > 1:
		case in == '[' && n > int64(b.Items):
			return Invalid(fieldAt(dec.StackPointer().Parent()), fmt.Sprintf("must have at most %d items", b.Items))
		case in == '{' && n > 2*int64(b.Members): // names and values count
			return Invalid(fieldAt(dec.StackPointer().Parent()), fmt.Sprintf("must have at most %d members", b.Members))
		}
	}
	return end(dec, len(body))
}

// end refuses data after the value.
func end(dec *jsontext.Decoder, size int) error {
	switch _, err := dec.ReadToken(); {
	case err == nil:
		return &SyntaxError{Problem: "data after the JSON value"}
	case !errors.Is(err, io.EOF):
		return formError(err, size)
	}
	return nil
}

func formError(err error, size int) error {
	if errors.Is(err, io.EOF) {
		return &SyntaxError{Problem: "it is empty"}
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &SyntaxError{Problem: Clip(err.Error())}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return Invalid(fieldAt(syntax.JSONPointer), "is a duplicate")
	}
	problem := Clip(syntax.Err.Error())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		problem = "unexpected end"
	}
	return &SyntaxError{Field: fieldAt(syntax.JSONPointer), Problem: problem + ", at byte " + strconv.FormatInt(min(syntax.ByteOffset, int64(size)), 10)}
}

// maxField bounds the path in an error, in bytes.
const maxField = 512

// fieldAt converts a JSON pointer to the path of a field in errors: lines[2].sku for
// /lines/2/sku.
func fieldAt(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		if b.Len() > maxField {
			b.WriteString("…")
			break
		}
		_, notIndex := strconv.Atoi(name)
		switch {
		case b.Len() > 0 && notIndex == nil:
			b.WriteString("[" + Clip(name) + "]")
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(Clip(name))
	}
	return b.String()
}

// Clip bounds the text that an error echoes and makes it valid UTF-8.
func Clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "…"
}

// RefuseNull refuses null anywhere in a body that Check has accepted: decoders treat it
// as an absent member, which the caller may not have intended. The error is an
// *InvalidError of one field.
func RefuseNull(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	for {
		token, err := dec.ReadToken()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return formError(err, len(body))
		}
		if token.Kind() == 'n' {
			return Invalid(fieldAt(dec.StackPointer()), "must not be null; omit it instead")
		}
	}
}
