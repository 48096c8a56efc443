package catalog_test

import (
	"math/rand/v2"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// The token of a key is that of the database, whatever its length and bytes.
func TestKeyToken(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		key := make([]byte, n)
		for range 20 {
			for i := range key {
				key[i] = byte(rnd.Uint32())
			}
			if got, want := rows.KeyToken(key), catalog.Murmur3Token(key); got != want {
				t.Errorf("KeyToken(%x) = %d, want %d", key, got, want)
			}
		}
	}
}
