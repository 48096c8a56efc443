// Package seeds sets the seeds of random choices in tests: the same in every
// run, unless the environment selects others.
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

// Variable is the environment variable that varies the seeds: its number, from
// 1 on, is part of each seed. `make explore` sets it.
const Variable = "TEST_SEED"

// Of returns the seed of a test: from its name, so that it is the same in every
// run, and from Variable. A failed test logs how to repeat it.
func Of(t testing.TB) uint64 {
	t.Helper()
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.Name()) // never fails
	return h.Sum64() + variable(t)
}

// Range returns n seeds, for a test that tries each: from Variable's on. A
// failed test logs how to repeat it.
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

// Rapid sets the first seed of pgregory.net/rapid from Variable instead of the
// time. Call it in TestMain; -rapid.seed on the command line takes precedence.
func Rapid() {
	n, err := number(Variable, 1)
	if err == nil {
		err = flag.Set("rapid.seed", fmt.Sprint(n))
	}
	if err != nil {
		panic(err)
	}
}

// Number returns the value of the environment variable name, by default def.
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

// Each runs f with n seeds, with -short at most short, each as a subtest, and
// returns their number. PREFIX_FIRST in the environment is the first seed, by
// default that of Variable, and PREFIX_SEEDS another n. A failed test logs how
// to repeat it; folder is that of the package.
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
