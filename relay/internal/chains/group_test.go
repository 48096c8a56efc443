package chains

import (
	"testing"
	"time"
)

// A group that becomes large while many of its replays are in progress, or after many
// of them failed, uses canaries from then on.
func TestGroup_GrowsLarge(t *testing.T) {
	t.Parallel()
	const above = 10
	now := time.Now()
	g := &Group{DeadLetters: above}
	for range 8 {
		if room := g.Room(now, above); room != -1 {
			t.Fatalf("a small group has room for %d, want any number", room)
		}
		g.Begin(now)
	}
	for range 4 {
		g.Died(now, now, above, "the same")
	}
	g.DeadLetters = 10 * above
	if room := g.Room(now, above); room != 0 {
		t.Errorf("with %d of a large group under way there is room for %d, want none", g.underWay, room)
	}
	for range 4 {
		g.Returned()
	}
	if room := g.Room(now, above); room != 1 {
		t.Errorf("with none under way there is room for %d, want one canary", room)
	}
	g.Begin(now)
	g.Succeeded()
	if room := g.Room(now, above); room != 2 {
		t.Errorf("after the first canary there is room for %d, want two", room)
	}
}
