package engine

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

func TestBeats(t *testing.T) {
	t.Parallel()
	live := store.Cell{Timestamp: 5, Value: []byte{1}}
	with := func(f func(*store.Cell)) store.Cell {
		c := live
		f(&c)
		return c
	}
	dead := store.Cell{Timestamp: 5, Dead: true}
	ttl := with(func(c *store.Cell) { c.TTL, c.Expiry = 10, 100 })
	for _, c := range []struct {
		name         string
		winner, lose store.Cell
	}{
		{"later", with(func(c *store.Cell) { c.Timestamp = 6 }), dead},
		{"deletion", dead, ttl},
		{"TTL", ttl, with(func(c *store.Cell) { c.Value = []byte{9} })},
		{"later expiry", with(func(c *store.Cell) { c.TTL, c.Expiry = 5, 101 }), ttl},
		{"larger value, unsigned", with(func(c *store.Cell) { c.Value = []byte{0xff} }), live},
	} {
		if !beats(&c.winner, &c.lose) || beats(&c.lose, &c.winner) {
			t.Errorf("%s: beats is wrong", c.name)
		}
	}
	if beats(&live, &live) {
		t.Error("a cell beats itself")
	}
}
