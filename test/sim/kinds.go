package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a way in which things go wrong.
type kind struct {
	name string
	most time.Duration // how long it lasts at most
	// begin lets it begin, and returns what ends it.
	begin func(r *rand.Rand, w *world) (end func())
	// excluding names what it must not meet, either way round.
	excluding []string
	// when says for which plans it is; nil means for all.
	when func(*plan) bool
}

// untilSpan is for what may last half as long as the simulation.
const untilSpan = -1

// kinds are all ways in which things go wrong.
//
// What must not meet is what would break what the system rests on: rows turn up
// within the confidence window, but those of lateKinds.
//
//   - A conditional write that is decided and invisible shows when its writer
//     asks again, so the database must be there for that, and a new generation
//     would block it for good.
//   - A replay of a batch is due a minute after it was sent, so the sending must
//     not take a minute too.
var kinds = slices.Concat(brokerKinds, databaseKinds, relayKinds, operatorKinds, lateKinds)

// kindOf is the kind of a name, nil if there is none.
func kindOf(name string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// upTo is a duration of at most d, and mostly much less.
func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(float64(d) * r.Float64() * r.Float64())
}
