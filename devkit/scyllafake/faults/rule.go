package faults

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Rule hits operations.
type Rule struct {
	// Name is for people.
	Name  string
	Match Match
	// Skip is how many matching operations pass before the rule begins.
	Skip int
	// Count is how many operations it hits; 0 means no limit.
	Count int
	// Probability is the chance of a matching operation to be hit, drawn from the
	// Injector's seeded source; 0 means 1.
	Probability float64
	Effect      Effect
}

// Match defines which operations match a rule. The zero value matches all.
type Match struct {
	// Keyspace and Table, unless empty, must match the operation or, for a write, any of
	// its mutations.
	Keyspace, Table string
	// Kinds, unless empty, are the kinds of operation that match.
	Kinds []engine.OpKind
	// Func, unless nil, must be true as well.
	Func func(engine.Op) bool
}

func (m *Match) matches(op engine.Op) bool {
	if len(m.Kinds) > 0 && !slices.Contains(m.Kinds, op.Kind) ||
		!m.onTable(op) {
		return false
	}
	return m.Func == nil || m.Func(op)
}

func (m *Match) onTable(op engine.Op) bool {
	same := func(keyspace, table string) bool {
		return (m.Keyspace == "" || m.Keyspace == keyspace) && (m.Table == "" || m.Table == table)
	}
	if same(op.Keyspace, op.Table) {
		return true
	}
	for _, mut := range op.Mutations {
		if same(mut.Table.Keyspace, mut.Table.Name) {
			return true
		}
	}
	return false
}

// Effect is the effect on an operation that is hit, in the order of the fields.
type Effect struct {
	// Freeze holds the operation until Thaw is called.
	Freeze bool
	// Generation begins a CDC generation.
	Generation *Generation
	// Resize splits or merges tablets.
	Resize *Resize
	// Delay is a pause. A real node times writes out after 2 s and reads after 5 s.
	Delay time.Duration
	// Failure is the error for the client; nil means the true response.
	Failure *Failure
	// Disconnect closes the connection instead of responding.
	Disconnect bool
	// Fate is the fate of a write that ends in Failure or Disconnect. For FateLater,
	// Later contains the delay of each application.
	Fate  engine.Fate
	Later []time.Duration
	// Decide, unless nil, replaces the fields from Delay to Later. ok false lets the
	// operation pass, and it does not count as hit.
	Decide func(engine.Op) (v engine.Verdict, ok bool)
}

// Generation describes a CDC generation to begin.
type Generation struct {
	// In is the time until it starts; 0 means as soon as a real node's would.
	In time.Duration
	// ExtraTokens is the number of vnodes beside the vnodes of the node's own tokens,
	// as after a second node has joined.
	ExtraTokens int
}

// Resize is a split of all tablets of a table, or a merge of each two.
type Resize struct {
	Keyspace, Table string
	Merge           bool
	// In is as for Generation.
	In time.Duration
}

// validate reports all problems of a rule.
func (r *Rule) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(r.Skip >= 0, "skip %d: must not be negative", r.Skip)
	check(r.Count >= 0, "count %d: must not be negative", r.Count)
	check(r.Probability >= 0 && r.Probability <= 1, "probability %v: must be between 0 and 1", r.Probability)
	e := &r.Effect
	check(e.Delay >= 0, "delay %v: must not be negative", e.Delay)
	check(e.Failure == nil || !e.Disconnect, "an operation can end in a failure or in a disconnect, not in both")
	check((e.Fate == engine.FateLater) == (len(e.Later) > 0), "the fate later, and no other, needs times")
	check(e.Failure != nil || e.Disconnect || e.Freeze || e.Delay > 0 || e.Generation != nil || e.Resize != nil || e.Decide != nil, "the rule has no effect")
	return errors.Join(errs...)
}
