package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a kind of fault.
type kind struct {
	name string
	most time.Duration // maximum duration
	// begin starts the fault and returns the function that ends it.
	begin func(r *rand.Rand, w *world) (end func())
	// excluding contains the kinds that must not overlap this one, in either direction.
	excluding []string
	// when reports whether a plan may contain it; nil means all plans.
	when func(*plan) bool
}

// untilSpan is the maximum duration of faults that may last half of the simulation.
const untilSpan = -1

// kinds contains all kinds of faults.
//
// Kinds exclude each other if their overlap would violate the system's assumption that
// rows become visible within the confidence window, except for lateKinds.
//
//   - - A conditional write that is decided and invisible becomes visible when its writer
//     retries. This requires the database, and a new generation would block it for good.
//   - - A replay of a batch is due a minute after it was sent, so the sending must not
//     take a minute too.
var kinds = slices.Concat(brokerKinds, answerKinds, topicKinds, databaseKinds, logKinds, writerKinds, clockKinds, relayKinds, operatorKinds, lateKinds)

// findKind returns the kind with the given name, nil if there is none.
func findKind(name string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// upTo returns a duration of at most d, mostly much shorter.
func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(float64(d) * r.Float64() * r.Float64())
}
