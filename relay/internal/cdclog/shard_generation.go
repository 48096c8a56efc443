package cdclog

import (
	"context"
	"math"
	"time"

	"github.com/gocql/gocql"
)

// NewGenerations returns the generations of a table's CDC log, with the streams that may
// contain rows of own.
func NewGenerations(session *gocql.Session, keyspace, table string, own *Portion) Generations {
	return &shardGenerations{&cqlGenerations{session: session, keyspace: keyspace, table: table}, own}
}

// shardGenerations are generations with the streams that may contain rows of a shard.
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

// only is the generation with the streams whose ranges the arc meets. For a token
// of the arc its streamsFor are what they were.
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

// EachRange calls f with every range, and with what says whether an arc has tokens
// of it. The first range goes on behind the last one's end.
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
