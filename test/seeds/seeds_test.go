package seeds_test

import (
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// A test has the same seed in every run, a different one from other tests, and
// another one if the environment sets it.
func TestOf(t *testing.T) {
	t.Setenv(seeds.Variable, "1")
	of := func(name string) (n uint64) {
		t.Run(name, func(t *testing.T) { n = seeds.Of(t) })
		return n
	}
	usual := of("a")
	const always = 1939440450234202157
	if usual != always {
		t.Errorf("Of() = %d, want %d in every run", usual, uint64(always))
	}
	if of("b") == usual {
		t.Error("two tests have one seed")
	}
	t.Setenv(seeds.Variable, "2")
	if of("a") == usual {
		t.Errorf("%s has no effect", seeds.Variable)
	}
}

func TestRange_BeginsWithTheVariable(t *testing.T) {
	t.Setenv(seeds.Variable, "7")
	if got := slices.Collect(seeds.Range(t, 3)); !slices.Equal(got, []uint64{7, 8, 9}) {
		t.Errorf("Range() = %d, want 7 to 9", got)
	}
}

func TestEach_BeginsWithTheVariable(t *testing.T) {
	t.Setenv(seeds.Variable, "7")
	var got []uint64
	seeds.Each(t, "test/seeds", "NOBODYS", 2, 2, func(_ *testing.T, seed uint64) { got = append(got, seed) })
	if len(got) != 2 || got[0] != 7 || got[1] != 8 {
		t.Errorf("Each() tried %d, want 7 and 8", got)
	}
}
