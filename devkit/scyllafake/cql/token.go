package cql

import "maps"

// kind is the lexical class of a token: ANTLR's name, as in "missing X at …". The names of
// keywords begin with K_.
type kind string

// Tokens that are not keywords.
const (
	tEOF       kind = "EOF"
	tIdent     kind = "IDENT"
	tQuoted    kind = "QUOTED_NAME"    // "Mixed"
	tString    kind = "STRING_LITERAL" // 'x' and $$x$$
	tInteger   kind = "INTEGER"
	tFloat     kind = "FLOAT"
	tBool      kind = "BOOLEAN"
	tDuration  kind = "DURATION"
	tUUID      kind = "UUID"
	tHex       kind = "HEXNUMBER"
	tQMark     kind = "QMARK"
	tLParen    kind = "'('"
	tRParen    kind = "')'"
	tLBracket  kind = "'['"
	tRBracket  kind = "']'"
	tLBrace    kind = "'{'"
	tRBrace    kind = "'}'"
	tLess      kind = "'<'"
	tGreater   kind = "'>'"
	tLessEq    kind = "'<='"
	tGreaterEq kind = "'>='"
	tNotEq     kind = "'!='"
	tEqual     kind = "'='"
	tPlus      kind = "'+'"
	tMinus     kind = "'-'"
	tStar      kind = "'*'"
	tComma     kind = "','"
	tDot       kind = "'.'"
	tColon     kind = "':'"
	tSemicolon kind = "';'"
)

// token is a piece of the source text: source[start:end], quotes included.
type token struct {
	kind       kind
	start, end int32
}

// kindSet is a set of kinds.
type kindSet map[kind]bool

func newKindSet(kinds ...kind) kindSet {
	s := make(kindSet, len(kinds))
	for _, k := range kinds {
		s[k] = true
	}
	return s
}

func (s kindSet) union(other kindSet) kindSet {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}
