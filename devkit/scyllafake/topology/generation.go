package topology

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Generation contains the CDC streams of all vnodes from a start time on. It is
// immutable.
type Generation struct {
	// ID is the generation's key in cdc_generation_descriptions_v2.
	ID     uuid.UUID
	Micros int64 // of the start, of whole milliseconds
	Vnodes []vnode
}

// vnode contains the streams for base tokens up to its end, one for each shard.
type vnode struct {
	End     int64
	Streams []StreamID
}

// Start returns the time from which the generation's streams are used.
func (g *Generation) Start() time.Time { return time.UnixMicro(g.Micros) }

// newGeneration returns the streams of a ring with these tokens, sorted. The first
// vnode is the one that wraps around.
func newGeneration(start int64, tokens []int64, shards int) *Generation {
	g := &Generation{ID: uuid.New(), Micros: start, Vnodes: make([]vnode, len(tokens))}
	ids := make([]StreamID, len(tokens)*shards)
	before := tokens[len(tokens)-1]
	for i, end := range tokens {
		streams := ids[:shards:shards]
		ids = ids[shards:]
		for shard := range streams {
			streams[shard] = newStreamID(firstToken(shards, shard, before, end), i)
		}
		g.Vnodes[i] = vnode{end, streams}
		before = end
	}
	return g
}

// stream returns the stream of a base token (cdc/metadata.cc get_stream).
func (g *Generation) stream(token int64) *StreamID {
	i, _ := slices.BinarySearchFunc(g.Vnodes, token, func(e vnode, t int64) int { return cmp.Compare(e.End, t) })
	if i == len(g.Vnodes) {
		i = 0
	}
	streams := g.Vnodes[i].Streams
	if len(streams) == 1 {
		return &streams[0]
	}
	return &streams[ShardFor(len(streams), token)]
}
