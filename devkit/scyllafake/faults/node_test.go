package faults

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// fixedSchema is a schema that does not change.
type fixedSchema catalog.Schema

func (s *fixedSchema) Schema() *catalog.Schema { return (*catalog.Schema)(s) }

// newNodeInjector returns an Injector of a node without a server.
func newNodeInjector(t *testing.T) *Injector {
	t.Helper()
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	clock := NewClock(nil)
	top, err := topology.Open(st, topology.Options{Tokens: 2, Version: catalog.Version{Major: 2025, Minor: 4}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	logged := &catalog.Table{Keyspace: "ks", Name: "ev", StoreID: 1001, CDC: &catalog.CDC{Enabled: true}}
	change, err := top.CreateStreams(logged, 2)
	if err != nil {
		t.Fatal(err)
	}
	change.Publish()
	schema := &catalog.Schema{Keyspaces: map[string]*catalog.Keyspace{"ks": {
		Name: "ks", Tablets: true, Tables: map[string]*catalog.Table{"ev": logged},
	}}}
	return New(NewNode(top, (*fixedSchema)(schema), clock, catalog.Version{Major: 5, Minor: 1}), clock, 1, nil)
}

// A rule can begin a generation, or split tablets, when it is hit.
func TestInjector_ChangesTheNode(t *testing.T) {
	t.Parallel()
	a := newNodeInjector(t)
	a.MustAdd(Rule{Count: 1, Effect: Effect{Generation: &Generation{In: time.Minute}, Resize: &Resize{Keyspace: "ks", Table: "ev"}}})
	a.MustAdd(Rule{Effect: Effect{Resize: &Resize{Keyspace: "ks", Table: "nosuch"}}})
	if v := a.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err != nil {
		t.Fatal(v.Err)
	}
	gens := len(a.node.topology.Generations())
	if n, err := a.Node().Tablets("ks", "ev"); gens != 2 || n != 4 || err != nil {
		t.Errorf("%d generations, %d tablets, %v; want 2 and 4", gens, n, err)
	}
	if v := a.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err == nil {
		t.Error("a rule that cannot do its work passes in silence")
	}
}
