package app

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

const (
	// relayMemory is the soft memory limit of a relay whose live memory is small.
	relayMemory = 150 << 20
	// relayGarbage is, with a third of the live memory, what may be garbage beyond that.
	relayGarbage = 48 << 20
)

// softLimit returns the soft memory limit for so much live memory.
func softLimit(live int64) int64 { return max(relayMemory, live+live/3+relayGarbage) }

// limitMemory keeps the soft memory limit of the process close above its live memory until
// ctx ends. Go alone permits as much garbage as live memory, and below a fixed limit a full
// dedup index, or two after a takeover, would leave the collector no room.
func limitMemory(ctx context.Context) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for limit := int64(0); ; {
		metrics.Read(live)
		// To set it stops the process for a moment.
		if next := softLimit(int64(live[0].Value.Uint64())); next > limit || next < limit/8*7 {
			debug.SetMemoryLimit(next)
			limit = next
		}
		if retry.Wait(ctx, time.Second) != nil {
			return
		}
	}
}
