package cdclog

import (
	"math"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// TokenRange is a part of the token ring: the tokens above after, up to upTo. It does not
// go round the end; no key has the lowest token.
type TokenRange struct{ After, UpTo int64 }

// Ring is all of it.
var Ring = TokenRange{math.MinInt64, math.MaxInt64}

// Has says whether the token is in the arc.
func (a TokenRange) Has(token int64) bool { return token > a.After && token <= a.UpTo }

// Meets says whether the two have a token in common.
func (a TokenRange) Meets(b TokenRange) bool { return max(a.After, b.After) < min(a.UpTo, b.UpTo) }

// step is how many tokens each of so many parts has, but for the last.
func (a TokenRange) step(of int) uint64 { return (uint64(a.UpTo) - uint64(a.After)) / uint64(of) }

// Part is one of so many equal parts of the arc, from 0 on.
func (a TokenRange) Part(n, of int) TokenRange {
	step := a.step(of)
	p := TokenRange{a.After + int64(uint64(n)*step), a.After + int64(uint64(n+1)*step)}
	if n == of-1 {
		p.UpTo = a.UpTo
	}
	return p
}

// PartOf is which of so many equal parts has the token, which is in the arc.
func (a TokenRange) PartOf(token int64, of int) int {
	return int(min((uint64(token)-uint64(a.After)-1)/a.step(of), uint64(of-1)))
}

// Portion is what a relay answers for of an outbox table: the aggregates with a
// token in the arc. It does not change once the table is known, and nil is all.
type Portion struct {
	Shard  Shard
	Tokens TokenRange
	Table  outbox.Table
}

// PortionOf is what a shard has of a table.
func PortionOf(s Shard, table outbox.Table) Portion {
	p := Portion{Shard: s, Tokens: Ring, Table: table}
	switch {
	case s.Count == 0:
	case table.ByAggregate():
		p.Tokens = Ring.Part(s.Index, s.Count)
	case s.Index > 0:
		p.Tokens = TokenRange{}
	}
	return p
}

// All says that nothing is anybody else's.
func (p *Portion) All() bool { return p == nil || p.Tokens == Ring || p.Shard.Count == 0 }

// None says that everything is.
func (p *Portion) None() bool { return !p.All() && p.Tokens.After == p.Tokens.UpTo }

// HasToken says whether aggregates of the token belong to it.
func (p *Portion) HasToken(t int64) bool { return p.All() || p.Tokens.Has(t) }

// HasAggregate says whether an aggregate with a uuid for its key belongs to it.
func (p *Portion) HasAggregate(aggregate gocql.UUID) bool {
	return p.All() || p.Tokens.Has(outbox.Token(aggregate))
}

// HasKey says whether a partition with that key belongs to it.
func (p *Portion) HasKey(key []byte) bool {
	if p.All() {
		return true
	}
	if len(key) == len(gocql.UUID{}) {
		return p.Tokens.Has(outbox.Token(gocql.UUID(key))) // the same, and quicker
	}
	return p.Tokens.Has(outbox.KeyToken(key))
}

// HasSubject says whether the aggregate whose id is published so belongs to it.
func (p *Portion) HasSubject(id []byte) bool { return p.All() || p.Tokens.Has(p.Table.BytesToken(id)) }

// HasText is subject for a string.
func (p *Portion) HasText(id string) bool { return p.All() || p.Tokens.Has(p.Table.TextToken(id)) }

// HasRow says whether a row of the log belongs to it. One that does not even say its
// aggregate does: whoever decodes it says what is wrong.
func (p *Portion) HasRow(r outbox.Row) bool {
	if p.All() {
		return true
	}
	token, ok := p.Table.RowToken(r)
	return !ok || p.Tokens.Has(token)
}
