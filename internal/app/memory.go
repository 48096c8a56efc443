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
	followLive(ctx, time.Second, softLimit, func(limit int64) { debug.SetMemoryLimit(limit) })
}

const (
	// apiGarbage is the garbage that a process with an API may have, however little of its memory is
	// live: a request leaves tens of KB, and with 8 MB of live memory the collector took a fifth of
	// the processor time of a busy API.
	apiGarbage = 32 << 20
	// maxGCPercent bounds GOGC, which counts stacks and globals too.
	maxGCPercent = 400
)

// gcPercent returns the GOGC that permits apiGarbage, or as much garbage as live memory.
func gcPercent(live int64) int64 { return max(100, min(maxGCPercent, 100*apiGarbage/max(live, 1))) }

// permitGarbage keeps GOGC at gcPercent until ctx ends.
func permitGarbage(ctx context.Context) {
	// Live memory that grows meanwhile may have as much garbage as GOGC permits.
	followLive(ctx, 100*time.Millisecond, gcPercent, func(percent int64) { debug.SetGCPercent(int(percent)) })
}

// followLive sets a value that depends on the live memory until ctx ends.
func followLive(ctx context.Context, interval time.Duration, choose func(live int64) int64, set func(int64)) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for last := int64(0); ; {
		metrics.Read(live)
		// To set it stops the process for a moment, so it may lag by an eighth.
		if next := choose(int64(live[0].Value.Uint64())); next > last || 8*next < 7*last {
			set(next)
			last = next
		}
		if retry.Wait(ctx, interval) != nil {
			return
		}
	}
}
