package cdclog

import (
	"context"
	"math"
	"time"

	"github.com/gocql/gocql"
)

// NewGenerations returns the generations of a table's CDC log, limited to the streams
// that may contain rows of own.
func NewGenerations(session *gocql.Session, keyspace, table string, own *Portion) Generations {
	return &shardGenerations{&cqlGenerations{session: session, keyspace: keyspace, table: table}, own}
}

// shardGenerations limits generations to the streams that may contain rows of a shard.
type shardGenerations struct {
	Generations
	own *Portion
}

func (o *shardGenerations) Generation(ctx context.Context, start time.Time) (*Generation, error) {
	g, err := o.Generations.Generation(ctx, start)
	if err != nil || o.own.All() {
		return g, err
	}
	return g.only(o.own.Tokens), nil
}

// only returns the generation with the streams whose ranges overlap a. StreamsFor returns
// the same streams as before for tokens in a.
func (g *Generation) only(a TokenRange) *Generation {
	ends := make(map[int]int64)
	g.EachRange(func(r StreamRange, has func(TokenRange) bool) {
		if has(a) {
			for _, s := range r.Streams {
				ends[s] = r.End
			}
		}
	})
	var streams [][]byte
	var of []int64
	for i, s := range g.Streams {
		if end, ok := ends[i]; ok {
			streams, of = append(streams, s), append(of, end)
		}
	}
	return NewGeneration(g.Start, streams, func(i int) int64 { return of[i] })
}

// EachRange calls f with every range and a function that reports whether a token range
// overlaps it. The first range also contains the tokens after the end of the last one.
func (g *Generation) EachRange(f func(r StreamRange, has func(TokenRange) bool)) {
	after := int64(math.MinInt64)
	for i, r := range g.Ranges {
		own := TokenRange{after, r.End}
		f(r, func(a TokenRange) bool {
			return own.Meets(a) || i == 0 && TokenRange{g.Ranges[len(g.Ranges)-1].End, math.MaxInt64}.Meets(a)
		})
		after = r.End
	}
}
