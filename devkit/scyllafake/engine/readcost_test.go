package engine_test

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// For each page of several partitions a node reads up to a page of every one of them
// that is not at its end, whatever it returns (measured; facts, section 12).
func TestReadCosts_PagesOfSeveralPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cql            string
		page           int32
		read, returned int64
	}{
		{"SELECT v FROM plain WHERE pk = 1", 4, 10, 10},
		{"SELECT v FROM plain WHERE pk IN (1, 2)", 100, 20, 20},
		{"SELECT v FROM plain WHERE pk IN (1, 2)", 4, 8 + 8 + 6 + 4 + 4, 20},
	} {
		costs := new(engine.ReadCosts)
		n := setupCosts(t, nil, costs, usualTables...)
		for pk := range 2 {
			for ck := range 10 {
				n.play(step{"INSERT INTO plain (pk, ck, v) VALUES (" + itoa(pk+1) + ", " + itoa(ck) + ", 0)", ""})
			}
		}
		n.pages(c.cql, c.page)
		if read, returned := costs.Rows(); read != c.read || returned != c.returned {
			t.Errorf("%s in pages of %d: %d rows read, %d returned, want %d and %d", c.cql, c.page, read, returned, c.read, c.returned)
		}
	}
}
