// Package seeds runs tests by seeds, of which the environment says how many.
package seeds

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Number is what the environment has under name, def if it has nothing.
func Number(t testing.TB, name string, def uint64) uint64 {
	t.Helper()
	s, ok := os.LookupEnv(name)
	if !ok {
		return def
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return n
}

// Each runs f with n seeds, with -short no more than short, each as a test of its own,
// and returns their number. PREFIX_FIRST in the environment is the first seed, 1
// without it, and PREFIX_SEEDS another n. A test that fails says how it is run again;
// folder is that of the package.
func Each(t *testing.T, folder, prefix string, n, short uint64, f func(t *testing.T, seed uint64)) uint64 {
	t.Helper()
	first, n := Number(t, prefix+"_FIRST", 1), Number(t, prefix+"_SEEDS", n)
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
