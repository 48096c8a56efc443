package topology

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// memory is a Store that keeps metas and counts written rows by table.
type memory struct {
	mu    sync.Mutex
	metas map[string][]byte
	rows  map[string]int
	fail  error
}

func newMemory() *memory { return &memory{metas: map[string][]byte{}, rows: map[string]int{}} }

func (m *memory) Apply(muts []*store.Mutation, metas ...store.Meta) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, mut := range muts {
		name := mut.Table.Keyspace + "." + mut.Table.Name
		if mut.Deleted.Set {
			m.rows[name] = 0
		}
		m.rows[name] += len(mut.Rows)
	}
	for _, e := range metas {
		if e.Value == nil {
			delete(m.metas, e.Key)
		} else {
			m.metas[e.Key] = e.Value
		}
	}
	return nil
}

func (m *memory) Metas(prefix string) ([]store.Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []store.Meta
	for _, k := range slices.Sorted(maps.Keys(m.metas)) {
		if strings.HasPrefix(k, prefix) {
			out = append(out, store.Meta{Key: k, Value: m.metas[k]})
		}
	}
	return out, nil
}

// clock is a settable node clock.
type clock struct{ at time.Time }

func (c *clock) Now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 11, 21, 4, 55, 53, 889_123_000, time.UTC)} }

func open(t *testing.T, st Store, c *clock, change func(*Options)) *Topology {
	t.Helper()
	o := Options{Tokens: 8, Version: catalog.Version{Major: 5, Minor: 1}, Clock: c}
	if change != nil {
		change(&o)
	}
	top, err := Open(st, o)
	if err != nil {
		t.Fatalf("Open() error = %v", err)
	}
	return top
}

func TestOpen_RestartKeepsTheNode(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	first := open(t, st, c, func(o *Options) { o.Shards = 2 })
	if _, err := first.NewGeneration(c.at.Add(time.Minute), 3); err != nil {
		t.Fatal(err)
	}
	c.at = c.at.Add(time.Hour)
	again := open(t, st, c, func(o *Options) { o.Shards, o.Tokens = 2, 5 })
	if again.HostID != first.HostID || !slices.Equal(again.Tokens, first.Tokens) {
		t.Errorf("after a restart host %v tokens %v, want %v %v", again.HostID, again.Tokens, first.HostID, first.Tokens)
	}
	a, b := first.Generations(), again.Generations()
	if len(a) != 2 || len(b) != 2 {
		t.Fatalf("%d and %d generations, want 2 and 2", len(a), len(b))
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Micros != b[i].Micros || !slices.EqualFunc(a[i].Vnodes, b[i].Vnodes, func(x, y vnode) bool {
			return x.End == y.End && slices.Equal(x.Streams, y.Streams)
		}) {
			t.Errorf("generation %d differs after a restart", i)
		}
	}
}

// The seed decides where a node's tokens lie, and the ones of each later generation.
func TestOpen_SeedDecidesTheTokens(t *testing.T) {
	t.Parallel()
	tokens := func(seed uint64) (all []int64) {
		c := newClock()
		top := open(t, newMemory(), c, func(o *Options) { o.Seed = seed })
		for i := range 3 {
			if _, err := top.NewGeneration(c.at.Add(time.Duration(i+1)*time.Minute), 3); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range top.Generations() {
			for _, v := range g.Vnodes {
				all = append(all, v.End)
			}
		}
		return all
	}
	one := tokens(1)
	if again := tokens(1); !slices.Equal(again, one) {
		t.Errorf("tokens %d, and by the same seed %d", one, again)
	}
	for _, token := range tokens(2) {
		if slices.Contains(one, token) {
			t.Errorf("two seeds give token %d", token)
		}
	}
	slices.Sort(one)
	if n := len(slices.Compact(one)); n != 8+3*3 {
		t.Errorf("%d different tokens, want the node's 8 and others in each generation", n)
	}
}

func TestOpen_OtherShardCountMakesAGeneration(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	open(t, st, c, nil)
	c.at = c.at.Add(time.Second)
	again := open(t, st, c, func(o *Options) { o.Shards = 4 })
	gens := again.Generations()
	if len(gens) != 2 || len(gens[1].Vnodes[0].Streams) != 4 {
		t.Fatalf("%d generations, want a second one of 4 shards", len(gens))
	}
}

func TestOpen_TakesAnIdentity(t *testing.T) {
	t.Parallel()
	id := &Identity{
		HostID: uuid.New(), Tokens: []int64{-5, 7}, GenerationID: uuid.New(),
		Start:   time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC),
		Streams: [][]StreamID{{{1}}, {{2}}},
	}
	st, c := newMemory(), newClock()
	with := func(o *Options) { o.Identity = id }
	first := open(t, st, c, with)
	g := first.Generations()[0]
	if first.HostID != id.HostID || !slices.Equal(first.Tokens, id.Tokens) || g.ID != id.GenerationID || !g.Start().Equal(id.Start) {
		t.Errorf("node %v %v with generation %v from %v, want %+v", first.HostID, first.Tokens, g.ID, g.Start(), id)
	}
	if got := *g.stream(7); got != (StreamID{2}) {
		t.Errorf("stream of token 7 = %x, want that of the identity", got)
	}
	again := open(t, st, c, nil)
	if again.HostID != id.HostID || len(again.Generations()) != 1 {
		t.Errorf("after a restart host %v with %d generations", again.HostID, len(again.Generations()))
	}
	second := *id
	second.Start, second.GenerationID = id.Start.Add(time.Hour), uuid.New()
	if g, err := again.AddGeneration(&second); err != nil || g.ID != second.GenerationID || len(again.Generations()) != 2 {
		t.Errorf("AddGeneration() = %v, %v", g, err)
	}
	if _, err := again.AddGeneration(id); err == nil {
		t.Error("AddGeneration() of an earlier generation succeeded")
	}
	id.Streams = id.Streams[:1]
	if _, err := Open(newMemory(), Options{Identity: id}); err == nil {
		t.Error("Open() with streams for one of two tokens succeeded")
	}
}

func TestOpen_Rejects(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Shards: -1}, {Shards: 1000}, {Tokens: -1}, {Tokens: 1 << 20}} {
		if _, err := Open(newMemory(), o); err == nil {
			t.Errorf("Open(%+v) succeeded", o)
		}
	}
	st := newMemory()
	st.metas[metaNode] = []byte(`{"Tokens":[]}`)
	if _, err := Open(st, Options{}); err == nil {
		t.Error("Open() with a node without tokens succeeded")
	}
	st = newMemory()
	st.metas[metaGenerations+"1"] = []byte(`{"Vnodes":[{"Streams":["AA=="]}]}`)
	if _, err := Open(st, Options{}); err == nil {
		t.Error("Open() with a stream id of one byte succeeded")
	}
}

func TestNewGeneration_StartsInOrderAndInWholeMilliseconds(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	top := open(t, st, c, func(o *Options) { o.RingDelay = 2 * time.Second })
	first := top.Generations()[0]
	if got := first.Start(); !got.Equal(c.at.Truncate(time.Millisecond)) {
		t.Errorf("first generation starts at %v, want %v", got, c.at.Truncate(time.Millisecond))
	}
	g, err := top.NewGeneration(time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := g.Start(), c.at.Truncate(time.Millisecond).Add(9*time.Second); !got.Equal(want) {
		t.Errorf("next generation starts at %v, want twice the ring delay and 5 s: %v", got, want)
	}
	late, err := top.NewGeneration(c.at, 0) // before the one that is there
	if err != nil {
		t.Fatal(err)
	}
	if want := g.Start().Add(time.Millisecond); !late.Start().Equal(want) {
		t.Errorf("a generation in the past starts at %v, want %v", late.Start(), want)
	}
	if got := st.rows["system_distributed.cdc_streams_descriptions_v2"]; got != 3*8 {
		t.Errorf("%d description rows, want 24", got)
	}
	if got := st.rows["system_distributed.cdc_generation_timestamps"]; got != 3 {
		t.Errorf("%d timestamp rows, want 3", got)
	}
}

func TestNewGeneration_ExtraTokensAreVnodes(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	top := open(t, st, c, nil)
	g, err := top.NewGeneration(time.Time{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Vnodes) != 12 || len(top.Tokens) != 8 {
		t.Errorf("%d vnodes and %d own tokens, want 12 and 8", len(g.Vnodes), len(top.Tokens))
	}
	if _, err := top.NewGeneration(time.Time{}, -1); err == nil {
		t.Error("NewGeneration() with -1 extra tokens succeeded")
	}
}

func TestNewGeneration_FailedStoreChangesNothing(t *testing.T) {
	t.Parallel()
	st, c := newMemory(), newClock()
	top := open(t, st, c, nil)
	st.fail = errTest
	if _, err := top.NewGeneration(time.Time{}, 0); err == nil {
		t.Fatal("NewGeneration() succeeded")
	}
	if n := len(top.Generations()); n != 1 {
		t.Errorf("%d generations, want 1", n)
	}
}
