// Package seeds decides what tests draw at random: the same in every run, and something
// else when the environment asks for it.
package seeds

import (
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment's variable that has tests draw other things than usual:
// its number, from 1 on, is part of each seed. `make explore` sets it.
const Variable = "TEST_SEED"

// Of is the seed of a test: from its name, so that it is the same in every run, and from
// Variable. A test that fails says how it is run again.
func Of(t testing.TB) uint64 {
	t.Helper()
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.Name()) // never fails
	return h.Sum64() + variable(t)
}

// Range are n seeds, for a test that tries each: from Variable's on. A test that fails
// says how it is run again.
func Range(t testing.TB, n uint64) iter.Seq[uint64] {
	t.Helper()
	first := variable(t)
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+n && yield(seed); seed++ {
		}
	}
}

// variable is the number of Variable, which a test that fails names.
func variable(t testing.TB) uint64 {
	t.Helper()
	n := Number(t, Variable, 1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: %s=%d go test -run '^%s$'", Variable, n, t.Name())
		}
	})
	return n
}

// Rand is a source of chance with a test's seed. It is not safe for concurrent use.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}

// Rapid has pgregory.net/rapid begin with Variable's seed, and not with the time. It is
// for the TestMain of a package that uses it; -rapid.seed on the command line wins.
func Rapid() {
	n, err := number(Variable, 1)
	if err == nil {
		err = flag.Set("rapid.seed", fmt.Sprint(n))
	}
	if err != nil {
		panic(err)
	}
}

// Number is what the environment has under name, def if it has nothing.
func Number(t testing.TB, name string, def uint64) uint64 {
	t.Helper()
	n, err := number(name, def)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func number(name string, def uint64) (uint64, error) {
	s, ok := os.LookupEnv(name)
	if !ok {
		return def, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: %w", name, s, err)
	}
	return n, nil
}

// Each runs f with n seeds, with -short no more than short, each as a test of its own,
// and returns their number. PREFIX_FIRST in the environment is the first seed, Variable's
// without it, and PREFIX_SEEDS another n. A test that fails says how it is run again;
// folder is that of the package.
func Each(t *testing.T, folder, prefix string, n, short uint64, f func(t *testing.T, seed uint64)) uint64 {
	t.Helper()
	first, n := Number(t, prefix+"_FIRST", Number(t, Variable, 1)), Number(t, prefix+"_SEEDS", n)
	if testing.Short() {
		n = min(n, short)
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("again: %[2]s_FIRST=%[3]d %[2]s_SEEDS=1 go test ./%[1]s -run TestSeeds -count 20", folder, prefix, seed)
				}
			}()
			f(t, seed)
		})
	}
	return n
}
