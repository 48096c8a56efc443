package relay

import (
	"testing"
	"time"
)

// In an outage the log says it now and then, not each second, and at once in the next.
func TestComplaint(t *testing.T) {
	t.Parallel()
	var c complaint
	now := time.Now()
	said := 0
	for range 150 { // seconds
		if c.due(now) {
			said++
		}
		now = now.Add(time.Second)
	}
	if said != 3 {
		t.Errorf("in 150 s it was said %d times, want 3", said)
	}
	c.over()
	if !c.due(now) {
		t.Error("the next time it was not said at once")
	}
}
