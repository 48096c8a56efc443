package topology

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Identity is the identity of a new node. A test that replays a recording of a real
// node gives its node the identity of that one, so that keys fall into the same
// streams.
type Identity struct {
	HostID uuid.UUID
	// Tokens are sorted and distinct.
	Tokens []int64
	// The first generation: its id, its start, and its streams by vnode, in
	// the order of Tokens, and then by shard. A nil Streams makes random ones;
	// a zero Start is now.
	GenerationID uuid.UUID
	Start        time.Time
	Streams      [][]StreamID
}

func (id *Identity) validate(shards int) error {
	if len(id.Tokens) == 0 || !slices.IsSorted(id.Tokens) {
		return fmt.Errorf("an identity needs tokens in order")
	}
	if id.Streams == nil {
		return nil
	}
	if len(id.Streams) != len(id.Tokens) {
		return fmt.Errorf("an identity with %d tokens has streams for %d", len(id.Tokens), len(id.Streams))
	}
	for i, streams := range id.Streams {
		if len(streams) != shards {
			return fmt.Errorf("token %d has %d streams on %d shards", id.Tokens[i], len(streams), shards)
		}
	}
	return nil
}

// AddGeneration adds a generation with the tokens, streams, id and start of an
// Identity, whose host id is ignored. It must start after all others; the node keeps
// its own tokens.
func (t *Topology) AddGeneration(id *Identity) (*Generation, error) {
	if err := id.validate(t.Shards); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := id.generation(t.clock.Now().UnixMicro(), t.Shards)
	if gens := t.state.Load().generations; len(gens) > 0 && g.Micros <= gens[len(gens)-1].Micros {
		return nil, fmt.Errorf("a generation from %s is not the last", g.Start())
	}
	if err := t.storeGeneration(g); err != nil {
		return nil, err
	}
	return g, nil
}

// generation returns the identity's first generation.
func (id *Identity) generation(now int64, shards int) *Generation {
	start := now
	if !id.Start.IsZero() {
		start = id.Start.UnixMicro()
	}
	g := newGeneration(wholeMillis(start), id.Tokens, shards)
	if id.GenerationID != uuid.Nil {
		g.ID = id.GenerationID
	}
	for i, streams := range id.Streams {
		g.Vnodes[i].Streams = slices.Clone(streams)
	}
	return g
}
