package relay

import (
	"math"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// arc is a part of the token ring: the tokens above after, up to upTo. It does not
// go round the end; no key has the lowest token.
type arc struct{ after, upTo int64 }

// ring is all of it.
var ring = arc{math.MinInt64, math.MaxInt64}

// has says whether the token is in the arc.
func (a arc) has(token int64) bool { return token > a.after && token <= a.upTo }

// meets says whether the two have a token in common.
func (a arc) meets(b arc) bool { return max(a.after, b.after) < min(a.upTo, b.upTo) }

// step is how many tokens each of so many parts has, but for the last.
func (a arc) step(of int) uint64 { return (uint64(a.upTo) - uint64(a.after)) / uint64(of) }

// part is one of so many equal parts of the arc, from 0 on.
func (a arc) part(n, of int) arc {
	step := a.step(of)
	p := arc{a.after + int64(uint64(n)*step), a.after + int64(uint64(n+1)*step)}
	if n == of-1 {
		p.upTo = a.upTo
	}
	return p
}

// partOf is which of so many equal parts has the token, which is in the arc.
func (a arc) partOf(token int64, of int) int {
	return int(min((uint64(token)-uint64(a.after)-1)/a.step(of), uint64(of-1)))
}

// portion is what a relay answers for of an outbox table: the aggregates with a
// token in the arc. It does not change once the table is known, and nil is all.
type portion struct {
	shard Shard
	arc   arc
	table outbox.Table
}

// portionOf is what a shard has of a table.
func portionOf(s Shard, table outbox.Table) portion {
	p := portion{shard: s, arc: ring, table: table}
	switch {
	case s.Count == 0:
	case table.ByAggregate():
		p.arc = ring.part(s.Index, s.Count)
	case s.Index > 0:
		p.arc = arc{}
	}
	return p
}

// all says that nothing is anybody else's.
func (p *portion) all() bool { return p == nil || p.arc == ring || p.shard.Count == 0 }

// none says that everything is.
func (p *portion) none() bool { return !p.all() && p.arc.after == p.arc.upTo }

// token says whether aggregates of the token belong to it.
func (p *portion) token(t int64) bool { return p.all() || p.arc.has(t) }

// plain says whether an aggregate with a uuid for its key belongs to it.
func (p *portion) plain(aggregate gocql.UUID) bool {
	return p.all() || p.arc.has(outbox.Token(aggregate))
}

// key says whether a partition with that key belongs to it.
func (p *portion) key(key []byte) bool {
	if p.all() {
		return true
	}
	if len(key) == len(gocql.UUID{}) {
		return p.arc.has(outbox.Token(gocql.UUID(key))) // the same, and quicker
	}
	return p.arc.has(outbox.KeyToken(key))
}

// subject says whether the aggregate whose id is published so belongs to it.
func (p *portion) subject(id []byte) bool { return p.all() || p.arc.has(p.table.BytesToken(id)) }

// text is subject for a string.
func (p *portion) text(id string) bool { return p.all() || p.arc.has(p.table.TextToken(id)) }

// row says whether a row of the log belongs to it. One that does not even say its
// aggregate does: whoever decodes it says what is wrong.
func (p *portion) row(r outbox.Row) bool {
	if p.all() {
		return true
	}
	token, ok := p.table.RowToken(r)
	return !ok || p.arc.has(token)
}
