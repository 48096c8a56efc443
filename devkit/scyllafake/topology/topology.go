package topology

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// The names of SimpleSnitch, and the default of Options.Tokens.
const (
	DefaultDataCenter = "datacenter1"
	DefaultRack       = "rack1"
	DefaultTokens     = 256
)

// Store is the part of package store that a Topology uses.
type Store interface {
	Apply(muts []*store.Mutation, meta ...store.Meta) error
	Metas(prefix string) ([]store.Meta, error)
}

// Options configure a Topology.
type Options struct {
	// Shards is the number of shards. Default 1.
	Shards int
	// Tokens is the number of tokens of a new node. Default DefaultTokens. A node that
	// has tokens keeps them.
	Tokens int
	// Identity is the identity of a new node; nil means a random one with Tokens
	// tokens.
	Identity *Identity
	// Seed seeds the choice of tokens: the same seed gives a new node the same tokens,
	// and so each generation that is added to it.
	Seed uint64
	// RingDelay is how long a node waits for gossip to settle; see NextStart.
	RingDelay time.Duration
	// Nodes is the number of nodes of the cluster. Default 1.
	Nodes int
	// Version determines which tables exist and which timestamps are accepted.
	Version catalog.Version
	// Clock is the node's clock; nil means that of the host.
	Clock store.Clock
}

// Topology is the node and its streams. It is safe for concurrent use; finding a stream
// takes no lock.
type Topology struct {
	// HostID, DataCenter, Rack, Shards and Tokens (sorted) do not change.
	HostID           uuid.UUID
	DataCenter, Rack string
	Shards           int
	Tokens           []int64

	store     Store
	clock     store.Clock
	ringDelay time.Duration
	nodes     atomic.Int32
	seed      uint64
	grouped   bool // the cluster's metadata are in Raft
	nearPast  bool // the previous generation accepts writes for a while
	system    map[string]*catalog.Keyspace

	mu        sync.Mutex // held by changes of the state
	lastWrite int64
	state     atomic.Pointer[state]
}

// state is the mutable part. It is immutable itself; update replaces it.
type state struct {
	generations []*Generation // by start
	tables      map[uint32]*tabletTable
}

// Open reads the node from the store, or creates a new one there: host id, tokens and a
// first generation that starts now. A restart keeps the generation, unless the number
// of shards has changed.
func Open(st Store, o Options) (*Topology, error) {
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.Tokens == 0 {
		o.Tokens = DefaultTokens
	}
	if o.Shards < 1 || o.Shards > 256 {
		return nil, fmt.Errorf("%d shards: must be 1 to 256", o.Shards)
	}
	if o.Tokens < 1 || o.Tokens > 1<<14 {
		return nil, fmt.Errorf("%d tokens: must be 1 to %d", o.Tokens, 1<<14)
	}
	if o.Clock == nil {
		o.Clock = store.HostClock{}
	}
	if o.Identity != nil {
		if err := o.Identity.validate(o.Shards); err != nil {
			return nil, err
		}
	}
	t := &Topology{
		DataCenter: DefaultDataCenter, Rack: DefaultRack, Shards: o.Shards,
		store: st, clock: o.Clock, ringDelay: o.RingDelay, seed: o.Seed,
		nearPast: o.Version.AtLeast(6, 0), grouped: o.Version.AtLeast(2025, 4),
		system: system.Keyspaces(o.Version),
	}
	t.nodes.Store(int32(max(o.Nodes, 1)))
	known, err := t.load()
	if err != nil {
		return nil, err
	}
	if !known && o.Identity != nil {
		t.HostID, t.Tokens = o.Identity.HostID, slices.Clone(o.Identity.Tokens)
		return t, t.storeGeneration(o.Identity.generation(t.clock.Now().UnixMicro(), t.Shards), t.nodeMeta())
	}
	if !known {
		t.HostID = uuid.New()
		t.Tokens = t.randomTokens(o.Tokens)
	}
	gens := t.state.Load().generations
	if !known || len(gens) == 0 || len(gens[len(gens)-1].Vnodes[0].Streams) != t.Shards {
		if err := t.begin(!known); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// begin stores a generation that starts now, and the node itself if it is new.
func (t *Topology) begin(newNode bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var metas []store.Meta
	if newNode {
		metas = append(metas, t.nodeMeta())
	}
	_, err := t.addGeneration(t.clock.Now(), t.Tokens, metas...)
	return err
}

// randomTokens returns n distinct tokens, none of them the node's, sorted. The next
// generation's are others.
func (t *Topology) randomTokens(n int) []int64 {
	rnd := rand.New(rand.NewPCG(t.seed, uint64(len(t.state.Load().generations))))
	seen := make(map[int64]bool, n+len(t.Tokens))
	for _, t := range t.Tokens {
		seen[t] = true
	}
	out := make([]int64, 0, n)
	for len(out) < n {
		// The two extremes have meanings of their own.
		if t := int64(rnd.Uint64()); t != math.MinInt64 && t != math.MaxInt64 && !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// NextStart returns the start of a generation or stream set that is made now: twice the
// ring delay and 5 s from now, so that every node has learnt of it by then; immediately
// without a ring delay.
func (t *Topology) NextStart() time.Time {
	if t.ringDelay <= 0 {
		return t.clock.Now()
	}
	return t.clock.Now().Add(2*t.ringDelay + Leeway)
}

// NewGeneration creates a generation that starts at the given time (in whole
// milliseconds, and after all others), or, for the zero time, at NextStart. Clients see
// its rows when NewGeneration returns. extraTokens adds vnodes, as the tokens of a
// second node would; they belong to this generation only.
func (t *Topology) NewGeneration(at time.Time, extraTokens int) (*Generation, error) {
	if extraTokens < 0 || extraTokens > 1<<14 {
		return nil, fmt.Errorf("%d extra tokens: must be 0 to %d", extraTokens, 1<<14)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.IsZero() {
		at = t.NextStart()
	}
	tokens := t.Tokens
	if extraTokens > 0 {
		tokens = append(slices.Clone(tokens), t.randomTokens(extraTokens)...)
		slices.Sort(tokens)
	}
	return t.addGeneration(at, tokens)
}

func (t *Topology) addGeneration(at time.Time, tokens []int64, metas ...store.Meta) (*Generation, error) {
	start := wholeMillis(at.UnixMicro())
	if gens := t.state.Load().generations; len(gens) > 0 {
		start = max(start, gens[len(gens)-1].Micros+1000)
	}
	g := newGeneration(start, tokens, t.Shards)
	if err := t.storeGeneration(g, metas...); err != nil {
		return nil, err
	}
	return g, nil
}

// storeGeneration stores a generation and publishes it. The caller excludes concurrent
// changes of the topology.
func (t *Topology) storeGeneration(g *Generation, metas ...store.Meta) error {
	if err := t.store.Apply(t.generationRows(g), append(metas, generationMeta(g))...); err != nil {
		return fmt.Errorf("store a CDC generation: %w", err)
	}
	t.update(func(s *state) { s.generations = append(slices.Clone(s.generations), g) })
	return nil
}

// Nodes returns the number of nodes of the cluster, each with Shards shards.
func (t *Topology) Nodes() int { return int(t.nodes.Load()) }

// SetNodes sets the number of nodes, as when one joins or leaves. It affects the number
// of tablets only.
func (t *Topology) SetNodes(n int) { t.nodes.Store(int32(max(n, 1))) }

// Generations returns all generations, by start; the caller must not change them.
func (t *Topology) Generations() []*Generation { return t.state.Load().generations }

// update publishes a changed copy of the state. The caller holds mu.
func (t *Topology) update(change func(*state)) {
	old := t.state.Load()
	s := &state{generations: old.generations, tables: maps.Clone(old.tables)}
	change(s)
	t.state.Store(s)
}

// wholeMillis rounds a time in microseconds down to the precision of a CQL timestamp.
func wholeMillis(micros int64) int64 {
	if r := micros % 1000; r < 0 {
		return micros - r - 1000
	}
	return micros - micros%1000
}
