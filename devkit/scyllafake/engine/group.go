package engine

import (
	"bytes"
	"context"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// aggregate reads all rows and emits one per group. GROUP BY columns are a prefix of
// the key, so groups are consecutive.
func (s *selection) aggregate(ctx context.Context) error {
	g := group{s: s}
	var groups uint64 // of the current partition
	for n := uint64(0); s.found; n++ {
		ok, err := s.step(ctx, n)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		keep, err := s.passes()
		if err != nil {
			return err
		}
		if !keep {
			continue
		}
		if !g.open || g.ended() {
			if !bytes.Equal(g.key, s.view.Key) {
				groups = 0
			}
			if err := g.flush(); err != nil {
				return err
			}
			if uint64(s.n) >= s.remaining {
				return nil
			}
			groups++
			if err := g.begin(groups <= s.perPartition); err != nil {
				return err
			}
		}
		if err := g.add(); err != nil {
			return err
		}
	}
	if !g.open && len(s.q.groupBy) == 0 {
		if err := g.beginEmpty(); err != nil {
			return err
		}
	}
	return g.flush()
}

// passes reports whether the row passes the filters; groups, not rows, are limited.
func (s *selection) passes() (bool, error) {
	limit := s.perPartition
	s.perPartition, s.fetched = 1, 0
	ok, err := s.keeps()
	s.perPartition = limit
	return ok, err
}

// group is the state of the current group.
type group struct {
	s     *selection
	open  bool
	shown bool     // within PER PARTITION LIMIT
	key   []byte   // partition
	by    [][]byte // values of the GROUP BY columns
	first [][]byte // the selected values beside aggregates, of the first row
}

// ended reports whether the current row belongs to another group.
func (g *group) ended() bool {
	if len(g.s.q.groupBy) == 0 {
		return false
	}
	if !bytes.Equal(g.key, g.s.view.Key) {
		return true
	}
	for i, c := range g.s.q.groupBy {
		if c.Kind == catalog.Clustering && !expr.SameBytes(g.by[i], g.s.view.Value(c)) {
			return true
		}
	}
	return false
}

// begin starts a group at the current row.
func (g *group) begin(shown bool) error {
	v := &g.s.view
	g.open, g.shown = true, shown
	g.key = append(g.key[:0], v.Key...)
	g.by = g.by[:0]
	for _, c := range g.s.q.groupBy {
		g.by = append(g.by, bytes.Clone(v.Value(c)))
	}
	return g.evaluate()
}

// beginEmpty starts the one group of a statement that found no rows.
func (g *group) beginEmpty() error {
	g.open, g.shown = true, true
	g.s.view.Static, g.s.view.Partition = nil, nil
	g.s.view.SetRow(nil)
	return g.evaluate()
}

func (g *group) evaluate() error {
	g.first = make([][]byte, len(g.s.q.selected))
	clear(g.s.x.Accs)
	for i := range g.s.q.selected {
		sel := &g.s.q.selected[i]
		if sel.Aggregates {
			continue
		}
		b, err := sel.Value(g.s.x, &g.s.view)
		if err != nil {
			return err
		}
		g.first[i] = bytes.Clone(b)
	}
	return nil
}

// add adds the current row to the group.
func (g *group) add() error {
	for _, a := range g.s.q.aggs {
		if err := a.Add(g.s.x, &g.s.x.Accs[a.Slot], &g.s.view); err != nil {
			return err
		}
	}
	return nil
}

// flush emits the group.
func (g *group) flush() error {
	if !g.open || !g.shown {
		return nil
	}
	for i := range g.s.q.selected {
		if sel := &g.s.q.selected[i]; sel.Aggregates {
			b, err := sel.Value(g.s.x, &g.s.view)
			if err != nil {
				return err
			}
			g.first[i] = b
		}
	}
	return g.s.emitValues(g.first)
}
