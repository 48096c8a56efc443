package cql

import (
	"math"
	"strings"
	"unicode/utf8"
)

// lex appends the tokens of src to buf, a final tEOF included. White space and comments
// are dropped.
//
// As in ScyllaDB the whole text is read before parsing begins, so a malformed token
// anywhere is reported before an error of the grammar.
func lex(src string, buf []token) ([]token, *SyntaxError) {
	if len(src) > math.MaxInt32-1 {
		return buf, &SyntaxError{Line: 1, Message: "line 1:0 statement is too long"}
	}
	for pos := 0; ; {
		var ok bool
		if pos, ok = skipSpace(src, pos); !ok {
			return buf, lexError(src, pos)
		}
		if pos == len(src) {
			return append(buf, token{kind: tEOF, start: int32(pos), end: int32(pos)}), nil
		}
		k, n := scan(src[pos:])
		if n == 0 {
			return buf, lexError(src, pos)
		}
		buf = append(buf, token{kind: k, start: int32(pos), end: int32(pos + n)})
		pos += n
	}
}

// lexError refuses an unknown character, or a string, quoted name or comment without
// end.
func lexError(src string, pos int) *SyntaxError {
	r, _ := utf8.DecodeRuneInString(src[pos:])
	return errorAt(src, pos, " no viable alternative at input '"+string(r)+"'")
}

// skipSpace returns the beginning of the next token; ok is false if a comment that
// begins there has no end.
func skipSpace(src string, pos int) (next int, ok bool) {
	for pos < len(src) {
		switch c := src[pos]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			pos++
		case strings.HasPrefix(src[pos:], "/*"):
			n := strings.Index(src[pos+2:], "*/")
			if n < 0 {
				return pos, false
			}
			pos += 2 + n + 2
		case strings.HasPrefix(src[pos:], "--") || strings.HasPrefix(src[pos:], "//"):
			n := strings.IndexAny(src[pos:], "\r\n")
			if n < 0 {
				// The grammar requires a line end after such a comment.
				return pos, false
			}
			pos += n + 1
		default:
			return pos, true
		}
	}
	return pos, true
}

// scan returns the kind and length of the token that s begins with; 0 if there is none.
func scan(s string) (kind, int) {
	switch c := s[0]; {
	case c == '\'':
		return scanQuoted(s, '\'', tString)
	case c == '"':
		k, n := scanQuoted(s, '"', tQuoted)
		if n == 2 {
			return k, 0 // a name has at least one character
		}
		return k, n
	case c == '$':
		return scanDollars(s)
	case isLetter(c) || isDigit(c):
		return scanWord(s)
	case c == '-':
		if n, k := scanNumber(s); n > 1 {
			return k, n
		}
		return tMinus, 1
	case c == '!':
		return tNotEq, length(s, "!=")
	case c == '<':
		if strings.HasPrefix(s, "<=") {
			return tLessEq, 2
		}
		return tLess, 1
	case c == '>':
		if strings.HasPrefix(s, ">=") {
			return tGreaterEq, 2
		}
		return tGreater, 1
	default:
		if k, ok := punctuation[c]; ok {
			return k, 1
		}
		return tEOF, 0
	}
}

var punctuation = map[byte]kind{
	'?': tQMark, '(': tLParen, ')': tRParen, '[': tLBracket, ']': tRBracket, '{': tLBrace, '}': tRBrace,
	'=': tEqual, '+': tPlus, '*': tStar, ',': tComma, '.': tDot, ':': tColon, ';': tSemicolon,
}

func length(s, prefix string) int {
	if strings.HasPrefix(s, prefix) {
		return len(prefix)
	}
	return 0
}

// scanQuoted reads 'x' or "x"; a doubled quote is an escaped one.
func scanQuoted(s string, quote byte, k kind) (kind, int) {
	for i := 1; i < len(s); i++ {
		if s[i] != quote {
			continue
		}
		if i+1 == len(s) || s[i+1] != quote {
			return k, i + 1
		}
		i++
	}
	return k, 0
}

// scanDollars reads $$x$$.
func scanDollars(s string) (kind, int) {
	if !strings.HasPrefix(s, "$$") {
		return tString, 0
	}
	n := strings.Index(s[2:], "$$")
	if n < 0 {
		return tString, 0
	}
	return tString, 2 + n + 2
}

// scanWord reads a token that begins with a letter or digit: the longest of an
// identifier, a uuid, a number and a duration; of two equally long ones the first in
// the grammar.
func scanWord(s string) (kind, int) {
	ident := 0
	if isLetter(s[0]) {
		for ident = 1; ident < len(s) && isIdent(s[ident]); ident++ {
		}
	}
	if isHex(s[0]) && len(s) >= 36 && isUUID(s[:36]) && ident < 36 {
		return tUUID, 36
	}
	if isDigit(s[0]) {
		n, k := scanNumber(s)
		if h := scanHex(s); h > n {
			return tHex, h
		}
		return k, n
	}
	if s[:ident] == "P" || s[:ident] == "PT" {
		return tDuration, ident // ISO durations without a part, which the grammar prefers to names
	}
	return wordKind(s[:ident]), ident
}

// wordKind distinguishes keywords and booleans from identifiers.
func wordKind(word string) kind {
	lower := strings.ToLower(word)
	if k, ok := keywordOf[lower]; ok {
		return k
	}
	if lower == "true" || lower == "false" {
		return tBool
	}
	return tIdent
}

// scanHex reads 0xCAFE.
func scanHex(s string) int {
	if len(s) < 2 || s[0] != '0' || s[1]|0x20 != 'x' {
		return 0
	}
	n := 2
	for n < len(s) && isHex(s[n]) {
		n++
	}
	return n
}

// scanNumber reads an integer, float or duration with its sign; n is 0 or 1
// when there is none.
func scanNumber(s string) (n int, k kind) {
	sign := 0
	if s[0] == '-' {
		sign = 1
	}
	n = sign + digits(s[sign:])
	if n == sign {
		return 0, tInteger
	}
	if d := scanUnits(s[sign:]); d > 0 {
		return sign + d, tDuration
	}
	k = tInteger
	if n < len(s) && s[n] == '.' {
		k = tFloat
		n++
		n += digits(s[n:])
	}
	if e := exponent(s[n:]); e > 0 {
		k = tFloat
		n += e
	}
	return n, k
}

func exponent(s string) int {
	if s == "" || s[0]|0x20 != 'e' {
		return 0
	}
	n := 1
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	if d := digits(s[n:]); d > 0 {
		return n + d
	}
	return 0
}

func digits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isIdent(c byte) bool  { return isLetter(c) || isDigit(c) || c == '_' }
func isHex(c byte) bool    { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isUUID(s string) bool {
	for i := range len(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return false
			}
		} else if !isHex(s[i]) {
			return false
		}
	}
	return true
}

// units are the units of a duration such as 1h30m, longer ones first.
var units = []string{"mo", "ms", "us", "µs", "ns", "y", "w", "d", "h", "m", "s"}

// scanUnits reads 1h30m: digits and a unit, one or more times. It returns 0
// if s does not begin with such a pair.
func scanUnits(s string) int {
	n := 0
	for {
		d := digits(s[n:])
		if d == 0 {
			return n
		}
		u := unit(s[n+d:])
		if u == 0 {
			return n
		}
		n += d + u
	}
}

func unit(s string) int {
	for _, u := range units {
		if len(s) >= len(u) && equalASCII(s[:len(u)], u) {
			return len(u)
		}
	}
	return 0
}

// equalASCII compares s with lower, ignoring the case of A-Z only: Unicode folding
// would accept a Greek mu for the micro sign.
func equalASCII(s, lower string) bool {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
