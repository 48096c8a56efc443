package cdc

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// position is a position between rows: just before (-1) or just after (+1) all rows
// that begin with prefix.
type position struct {
	prefix [][]byte
	weight int
}

func startOf(b store.Bound) position {
	if b.Inclusive {
		return position{b.Prefix, -1}
	}
	return position{b.Prefix, +1}
}

func endOf(b store.Bound) position {
	if b.Inclusive {
		return position{b.Prefix, +1}
	}
	return position{b.Prefix, -1}
}

func comparePositions(t *catalog.Table, a, b position) int {
	n := min(len(a.prefix), len(b.prefix))
	if c := catalog.CompareClustering(t.Clustering, a.prefix[:n], b.prefix[:n]); c != 0 {
		return c
	}
	switch {
	case len(a.prefix) < len(b.prefix):
		return a.weight
	case len(a.prefix) > len(b.prefix):
		return -b.weight
	}
	return a.weight - b.weight
}
