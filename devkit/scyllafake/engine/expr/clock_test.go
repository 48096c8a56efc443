package expr

import (
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// testClock is a clock that does not advance.
type testClock struct{ at time.Time }

func (c *testClock) Now() time.Time { return c.at }

func TestClock_ListKeys(t *testing.T) {
	t.Parallel()
	c := NewClock(&testClock{time.UnixMicro(1_795_236_982_000_000)})
	var list [][16]byte
	ordered := func() bool {
		return slices.IsSortedFunc(list, func(a, b [16]byte) int { return cqltype.TTimeUUID.Compare(a[:], b[:]) })
	}
	list = c.AppendKeys(3)
	list = append(list, c.AppendKeys(maxListSeq+10)...)
	list = append(list, c.AppendKeys(1)...)
	if !ordered() {
		t.Error("list keys are not in list order")
	}
	for _, k := range list {
		if err := cqltype.TTimeUUID.Validate(k[:]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClock_NeverRepeats(t *testing.T) {
	t.Parallel()
	wall := &testClock{time.UnixMicro(1_795_236_982_000_000)}
	c := NewClock(wall)
	seen := map[[16]byte]bool{}
	last := int64(0)
	for i := range 100 {
		if i == 50 {
			wall.at = wall.at.Add(-time.Hour)
		}
		u := c.timeUUID()
		if seen[u] {
			t.Fatalf("uuid %x repeats", u)
		}
		seen[u] = true
		ts := c.Micros()
		if ts <= last {
			t.Fatalf("timestamp %d after %d", ts, last)
		}
		last = ts
	}
}
