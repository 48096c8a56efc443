package cdclog

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Generations can be read while a table with tablets is dropped anywhere: the node then fails
// reads of the virtual tables for a moment.
func TestGenerations_WhileTablesAreDropped(t *testing.T) {
	t.Parallel()
	w := world.Start(t)
	for _, table := range []string{"cdc_timestamps", "cdc_streams"} {
		w.Node.Faults().MustAdd(faults.Rule{
			Match: faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Keyspace: "system", Table: table}, Count: 2,
			Effect: faults.Effect{Failure: faults.Refuse(cqlerr.Server, "Can't find a column family with UUID 5a0b1c2d")},
		})
	}
	g := NewGenerations(w.Session, schema.DefaultKeyspace, outbox.DefaultTableName, nil)
	starts, err := g.Times(t.Context())
	if err != nil || len(starts) != 1 {
		t.Fatalf("Times() = %v, %v, want one generation", starts, err)
	}
	if gen, err := g.Generation(t.Context(), starts[0]); err != nil || len(gen.Streams) == 0 {
		t.Errorf("Generation() = %+v, %v, want its streams", gen, err)
	}
}
