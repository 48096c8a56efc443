package engines

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Two writes of 10 ms at a time are 200 per second, whatever the concurrency; reads are
// not limited.
func TestCapacity_LimitsWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCapacity(2, 10*time.Millisecond)
		for kind, want := range map[engine.OpKind]time.Duration{engine.OpLoggedBatch: time.Second, engine.OpCAS: time.Second, engine.OpRead: 0} {
			began := time.Now()
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() { c.Before(t.Context(), engine.Op{Kind: kind}) })
			}
			wg.Wait()
			if d := time.Since(began); d != want {
				t.Errorf("200 operations of kind %d took %s, want %s", kind, d, want)
			}
		}
	})
}
