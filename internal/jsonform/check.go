package jsonform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds are those of a body's form, whatever its fields are. All but those of
// Free must be positive.
type Bounds struct {
	// Depth is how many levels of objects and lists it may have.
	Depth int
	// Members is how many an object may have, and Items how many a list.
	Members, Items int
	// Free names a member of the body that may be any JSON value of up to FreeDepth
	// levels, with as many members and items as fit the body. Empty for none.
	Free      string
	FreeDepth int
}

// Check passes once over a body, and costs the reading of its bytes and no more:
// no nesting beyond the bounds, no object of more members, no list of more items.
// It refuses what readers of JSON understand in different ways: a name that an
// object has twice, and text that is not UTF-8.
//
// The error is a *SyntaxError or an *InvalidError of one field.
func Check(body []byte, b Bounds) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	free := false // within the value of b.Free
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

// end refuses what follows the value.
func end(dec *jsontext.Decoder, size int) error {
	switch _, err := dec.ReadToken(); {
	case err == nil:
		return &SyntaxError{Problem: "more follows after the JSON value"}
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
		return Invalid(fieldAt(syntax.JSONPointer), "is there more than once")
	}
	problem := Clip(syntax.Err.Error())
	if errors.Is(err, io.ErrUnexpectedEOF) {
		problem = "it ends too early"
	}
	return &SyntaxError{Field: fieldAt(syntax.JSONPointer), Problem: problem + ", at byte " + strconv.FormatInt(min(syntax.ByteOffset, int64(size)), 10)}
}

// maxField bounds the path that an error names, in bytes.
const maxField = 512

// fieldAt writes a JSON pointer as the fields of errors are written:
// lines[2].sku for /lines/2/sku.
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

// Clip keeps what an error echoes short, and UTF-8.
func Clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "…"
}

// RefuseNull refuses null anywhere in a body that Check has passed: readers take
// it for a member that is absent, and who wrote it may have meant something else.
// The error is an *InvalidError of one field.
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
			return Invalid(fieldAt(dec.StackPointer()), "must not be null; leave it out instead")
		}
	}
}
