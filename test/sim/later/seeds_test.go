package later

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// A year with everything that can go wrong, once for each seed.
func TestSeeds(t *testing.T) {
	seeds.Each(t, "test/sim/later", "LATER", 50, 5, func(t *testing.T, seed uint64) { simulate(t, seed, aYear) })
}
