// Package hostile is what tests of an API ask about bodies that mean harm: whether they
// are answered by name and briefly, and cost no more than their size.
package hostile

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// atLeast is what reading any body may allocate, whatever its size.
const atLeast = 256 << 10

// largestAnswer is how many bytes an answer may have.
const largestAnswer = 32 << 10

// Members are n members of an object, without its braces, with names of their own.
func Members(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%x":1`, i)
	}
	return b.String()
}

// Answer is what an API said to a body.
type Answer struct {
	Status int
	Text   string
	// Locations are what its errors name.
	Locations []string
}

// Check has send send the body. The answer must have the status, name a location that
// begins with at, unless that is empty, and be short; and it must cost no more than
// perByte bytes of memory for each of the body's. Not for parallel tests; see Cost.
func Check(t *testing.T, body string, status int, at string, perByte int, send func() Answer) {
	t.Helper()
	var a Answer
	cost := Cost(t, len(body), perByte, func() { a = send() })
	if a.Status != status {
		t.Errorf("status %d, want %d: %.300s", a.Status, status, a.Text)
	}
	if at != "" && !slices.ContainsFunc(a.Locations, func(s string) bool { return strings.HasPrefix(s, at) }) {
		t.Errorf("the answer names %.200q, want %s", a.Locations, at)
	}
	if len(a.Text) > largestAnswer {
		t.Errorf("an answer of %d bytes", len(a.Text))
	}
	t.Logf("body %d, memory %d, answer %d", len(body), cost, len(a.Text))
}

// Cost is what f allocates, whoever frees it. It must be no more than perByte for each
// byte of a body of that size, and a little whatever the size. What fills a pool after
// a collection, or is made once, comes on top of that, so f may be called again. Not
// for parallel tests: it counts for the whole process.
func Cost(t *testing.T, size, perByte int, f func()) (cost uint64) {
	t.Helper()
	most := uint64(perByte*size + atLeast)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		if cost = after.TotalAlloc - before.TotalAlloc; cost <= most {
			return cost
		}
	}
	t.Errorf("%d bytes of body cost %d bytes of memory, want at most %d", size, cost, most)
	return cost
}
