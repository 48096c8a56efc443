package schema

import "strings"

// Statements splits CQL text at its semicolons, drops comments and collapses
// white space, both only outside quotes.
func Statements(text string) []string {
	var out []string
	var b strings.Builder
	space := false
	flush := func() {
		if b.Len() > 0 {
			out = append(out, b.String())
		}
		b.Reset()
		space = false
	}
	write := func(s string) {
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteString(s)
	}
	for text != "" {
		n := 1
		switch {
		case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "//"):
			n = through(text, 0, "\n")
			space = true
		case strings.HasPrefix(text, "/*"):
			n = through(text, 2, "*/")
			space = true
		case text[0] == '\'', text[0] == '"':
			// A doubled quote closes and opens the text again, with the same effect.
			n = through(text, 1, text[:1])
			write(text[:n])
		case strings.HasPrefix(text, "$$"):
			n = through(text, 2, "$$")
			write(text[:n])
		case text[0] == ';':
			flush()
		case strings.IndexByte(" \t\r\n", text[0]) >= 0:
			space = true
		default:
			write(text[:1])
		}
		text = text[n:]
	}
	flush()
	return out
}

// through returns the length of text up to and including end, searched from
// index from.
func through(text string, from int, end string) int {
	if i := strings.Index(text[from:], end); i >= 0 {
		return from + i + len(end)
	}
	return len(text)
}
