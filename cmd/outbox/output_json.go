package main

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// encodeJSON prints v as one line of JSON that does nothing to a terminal.
func encodeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(plainJSON(b), '\n'))
	return err
}

// plainJSON escapes what a terminal would obey or a reader would not see: control
// characters of the C1 set and DEL, and characters that change the direction of text or
// are invisible. The value is the same: in JSON they can only be within strings.
func plainJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...)
		case r < 0x20 || !hidden(r): // what is below a space is layout: strings have none of it
			out = append(out, b[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return out
}

// hidden reports whether a character controls a terminal, changes the direction of text,
// separates lines, or has no form of its own.
func hidden(r rune) bool { return unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) }
