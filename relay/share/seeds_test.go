package share

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Instances start, stop, are killed and disconnected at random. By their own knowledge no
// shard ever has two owners, and at the end each has one.
func TestMember_NeverTwoOwners(t *testing.T) {
	for seed := range seeds.Range(t, 8) {
		synctest.Test(t, func(t *testing.T) {
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t)
			defer w.close()
			var live []*instance
			come := func() {
				live = append(live, w.join(string(rune('a'+len(w.seen))), func(_ *Config, i *instance) {
					i.drain = time.Duration(r.IntN(15_000)) * time.Millisecond
				}))
			}
			come()
			for range 40 {
				time.Sleep(time.Duration(r.IntN(12_000)) * time.Millisecond)
				if len(live) == 0 {
					come()
					continue
				}
				n := r.IntN(len(live))
				switch r.IntN(6) {
				case 0, 1:
					if len(live) < 4 && len(w.seen) < 20 {
						come()
					}
				case 2:
					go live[n].stop()
					live = append(live[:n], live[n+1:]...)
				case 3:
					live[n].kill()
					live = append(live[:n], live[n+1:]...)
				case 4:
					live[n].link.cut()
				case 5:
					live[n].link.heal()
				}
			}
			if len(live) == 0 {
				come()
			}
			for _, i := range live {
				i.link.heal()
			}
			w.until(3*time.Minute, "all shards have an owner", func() bool { return w.number("") == 0 })
		})
	}
}
