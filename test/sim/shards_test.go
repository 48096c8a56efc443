package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Two to four relays own a shard each and are stopped or killed by a plan of the seed,
// while the broker fails and streams are replaced; then their number changes, and finally
// one relay runs without shards. No event is lost or duplicated, and each order's events
// are in sequence, although relays that have lost their shards write old checkpoints.
// SIM_FIRST_SHARDS and SIM_SHARDS set the seeds.
func TestShards_AreStoppedKilledAndDivided(t *testing.T) {
	first, n := seeds.Number(t, "SIM_FIRST_SHARDS", 61), seeds.Number(t, "SIM_SHARDS", 2)
	for seed := first; seed < first+n; seed++ {
		tt := struct {
			seed    uint64
			tablets bool
		}{seed, seed%2 == 0}
		t.Run(fmt.Sprint("seed=", tt.seed), func(t *testing.T) {
			seen := simulate(t, tt.seed, func(s *settings) {
				if !tt.tablets {
					onVnodes(s)
				}
			}, func(w *world) {
				rnd := rand.New(rand.NewPCG(tt.seed, 17))
				w.traffic(600, 90*time.Minute)
				time.Sleep(5 * time.Minute)
				w.stopRelay()
				for phase := range 3 {
					if phase > 0 {
						w.divideAndDie(rnd)
					}
					mend := func() {}
					switch phase {
					case 1:
						w.net.cut(broker)
						mend = func() { w.net.mend(broker) }
					case 2:
						w.newStreams()
					}
					timer := time.AfterFunc(6*time.Minute, mend)
					w.carryByShards(rnd, 2+rnd.IntN(3), 20*time.Minute)
					timer.Stop()
					mend()
				}
				w.startRelay()
			})
			wantOnce(t, seen)
			if seen.haunted == 0 {
				t.Error("no old checkpoint was written")
			}
		})
	}
}
