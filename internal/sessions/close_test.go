package sessions

import (
	"testing"
	"testing/synctest"
	"time"
)

// A call that ends is waited for, and one that does not is left behind.
func TestWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !within(Patience, func() { time.Sleep(time.Second) }) || time.Since(began) != time.Second {
			t.Errorf("what takes a second was waited for %s", time.Since(began))
		}
		release := make(chan struct{})
		defer close(release)
		began = time.Now()
		if within(Patience, func() { <-release }) || time.Since(began) != Patience {
			t.Errorf("what does not end was waited for %s, want %s", time.Since(began), Patience)
		}
	})
}
