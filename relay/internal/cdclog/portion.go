package cdclog

import (
	"math"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// TokenRange is the range of tokens after After, up to and including UpTo. It does not
// wrap around; no key has the lowest token.
type TokenRange struct{ After, UpTo int64 }

// Ring is the whole token ring.
var Ring = TokenRange{math.MinInt64, math.MaxInt64}

// Has reports whether the token is in the range.
func (a TokenRange) Has(token int64) bool { return token > a.After && token <= a.UpTo }

// Meets reports whether the ranges have a token in common.
func (a TokenRange) Meets(b TokenRange) bool { return max(a.After, b.After) < min(a.UpTo, b.UpTo) }

// step returns the number of tokens of each of so many equal parts except the last.
func (a TokenRange) step(of int) uint64 { return (uint64(a.UpTo) - uint64(a.After)) / uint64(of) }

// Part returns part n of so many equal parts, counted from 0.
func (a TokenRange) Part(n, of int) TokenRange {
	step := a.step(of)
	p := TokenRange{a.After + int64(uint64(n)*step), a.After + int64(uint64(n+1)*step)}
	if n == of-1 {
		p.UpTo = a.UpTo
	}
	return p
}

// FindPart returns the index of the part, of so many equal parts, that contains the token;
// the token must be in the range.
func (a TokenRange) FindPart(token int64, of int) int {
	return int(min((uint64(token)-uint64(a.After)-1)/a.step(of), uint64(of-1)))
}

// Portion is the part of an outbox table that a relay owns: the aggregates whose token is
// in Tokens. It is immutable once the table is known. A nil Portion is the whole table.
type Portion struct {
	Shard  Shard
	Tokens TokenRange
	Table  outbox.Table
}

// NewPortion returns the portion of a table that a shard owns.
func NewPortion(s Shard, table outbox.Table) Portion {
	p := Portion{Shard: s, Tokens: Ring, Table: table}
	switch {
	case s.Count == 0:
	case rows.ByAggregate(table):
		p.Tokens = Ring.Part(s.Index, s.Count)
	case s.Index > 0:
		p.Tokens = TokenRange{}
	}
	return p
}

// All reports whether the portion is the whole table.
func (p *Portion) All() bool { return p == nil || p.Tokens == Ring || p.Shard.Count == 0 }

// None reports whether the portion is empty.
func (p *Portion) None() bool { return !p.All() && p.Tokens.After == p.Tokens.UpTo }

// HasToken reports whether the portion contains the aggregates of the token.
func (p *Portion) HasToken(t int64) bool { return p.All() || p.Tokens.Has(t) }

// HasAggregate reports whether the portion contains an aggregate.
func (p *Portion) HasAggregate(aggregate outbox.ID) bool {
	return p.All() || p.Tokens.Has(rows.Token(p.Table, aggregate))
}

// HasKey reports whether the portion contains a partition with that key.
func (p *Portion) HasKey(key []byte) bool {
	if p.All() {
		return true
	}
	if len(key) == len(gocql.UUID{}) {
		return p.Tokens.Has(rows.UUIDToken(gocql.UUID(key))) // same result, faster
	}
	return p.Tokens.Has(rows.KeyToken(key))
}

// HasSubject reports whether the portion contains the aggregate with the given published
// id.
func (p *Portion) HasSubject(id []byte) bool {
	return p.All() || p.Tokens.Has(rows.BytesToken(p.Table, id))
}

// HasText is HasSubject for a string.
func (p *Portion) HasText(id string) bool {
	return p.All() || p.Tokens.Has(rows.TextToken(p.Table, id))
}

// HasRow reports whether the portion contains a row of the log. It returns true for a row
// without a readable aggregate: decoding it returns the error.
func (p *Portion) HasRow(r rows.Row) bool {
	if p.All() {
		return true
	}
	token, ok := rows.RowToken(p.Table, r)
	return !ok || p.Tokens.Has(token)
}
