package jsonform

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// List splits a body that is an object with one member, a list of 1 to most items, and
// returns the items as in body, each one JSON value. Check must validate each item, so
// that an invalid one does not affect the others. List stops reading at the first item
// beyond most.
//
// The error is a *SyntaxError or an *InvalidError.
func List(body []byte, member string, most int) ([][]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	wrong := Invalid("", fmt.Sprintf("must be an object of one list, such as {%q: [{…}]}", member))
	if dec.PeekKind() != '{' {
		if err := dec.SkipValue(); err != nil {
			return nil, formError(err, len(body))
		}
		if err := end(dec, len(body)); err != nil {
			return nil, err
		}
		return nil, wrong
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, formError(err, len(body))
	}
	var items [][]byte
	found := false
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		switch {
		case err != nil:
			return nil, formError(err, len(body))
		case name.String() != member:
			return nil, Invalid(Clip(name.String()), "is not a known field")
		case found:
			return nil, Invalid(member, "is a duplicate")
		}
		found = true
		if items, err = readItems(dec, body, member, most); err != nil {
			return nil, err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, formError(err, len(body))
	}
	if err := end(dec, len(body)); err != nil {
		return nil, err
	}
	if !found {
		return nil, wrong
	}
	return items, nil
}

func readItems(dec *jsontext.Decoder, body []byte, member string, most int) ([][]byte, error) {
	if dec.PeekKind() != '[' {
		if err := dec.SkipValue(); err != nil {
			return nil, formError(err, len(body))
		}
		return nil, Invalid(member, "must be a list")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, formError(err, len(body))
	}
	var items [][]byte
	for dec.PeekKind() != ']' {
		if len(items) == most {
			return nil, Invalid(member, fmt.Sprintf("must have 1 to %d items; it has more", most))
		}
		v, err := dec.ReadValue()
		if err != nil {
			return nil, formError(err, len(body))
		}
		at := int(dec.InputOffset())
		items = append(items, body[at-len(v):at])
	}
	if len(items) == 0 {
		return nil, Invalid(member, fmt.Sprintf("must have 1 to %d items; it has none", most))
	}
	_, err := dec.ReadToken()
	if err != nil {
		return nil, formError(err, len(body))
	}
	return items, nil
}
