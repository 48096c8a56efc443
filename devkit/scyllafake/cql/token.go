package cql

// kind is the lexical class of a token.
type kind uint8

// Tokens that are not keywords.
const (
	tEOF kind = iota
	tIdent
	tQuoted // "Mixed"
	tString // 'x' and $$x$$
	tInteger
	tFloat
	tBool
	tDuration
	tUUID
	tHex
	tQMark
	tLParen
	tRParen
	tLBracket
	tRBracket
	tLBrace
	tRBrace
	tLess
	tGreater
	tLessEq
	tGreaterEq
	tNotEq
	tEqual
	tPlus
	tMinus
	tStar
	tComma
	tDot
	tColon
	tSemicolon
	// firstKeyword is the first of the keywords; see keywords.go.
	firstKeyword
)

// tokenNames are ANTLR's names, as in "missing X at …".
var tokenNames = [firstKeyword]string{
	tEOF: "EOF", tIdent: "IDENT", tQuoted: "QUOTED_NAME", tString: "STRING_LITERAL", tInteger: "INTEGER",
	tFloat: "FLOAT", tBool: "BOOLEAN", tDuration: "DURATION", tUUID: "UUID", tHex: "HEXNUMBER", tQMark: "QMARK",
	tLParen: "'('", tRParen: "')'", tLBracket: "'['", tRBracket: "']'", tLBrace: "'{'", tRBrace: "'}'",
	tLess: "'<'", tGreater: "'>'", tLessEq: "'<='", tGreaterEq: "'>='", tNotEq: "'!='", tEqual: "'='",
	tPlus: "'+'", tMinus: "'-'", tStar: "'*'", tComma: "','", tDot: "'.'", tColon: "':'", tSemicolon: "';'",
}

func (k kind) String() string {
	if k < firstKeyword {
		return tokenNames[k]
	}
	return "K_" + keywords[k-firstKeyword].name
}

// token is a piece of the source text: source[start:end], quotes included.
type token struct {
	kind       kind
	start, end int32
}

// kindSet is a set of kinds.
type kindSet [4]uint64

func setOf(kinds ...kind) kindSet {
	var s kindSet
	for _, k := range kinds {
		s[k>>6] |= 1 << (k & 63)
	}
	return s
}

func (s kindSet) has(k kind) bool { return s[k>>6]&(1<<(k&63)) != 0 }

func (s kindSet) union(other kindSet) kindSet {
	for i := range s {
		s[i] |= other[i]
	}
	return s
}
