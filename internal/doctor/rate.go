package doctor

import (
	"fmt"
	"math"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// rememberedBytes is the memory of an event that the sweep reader has not read: its id, and
// half of one that is kept longer (relay.Config.DedupMemory).
const rememberedBytes = 36

// checkRate reports the event rate up to which the tail reader never waits for the sweep
// reader. It never fails, because the actual rate is unknown.
func checkRate(c *app.Config) Finding {
	const check = "event rate"
	r := c.Relay
	if r.TailMaxInterval < 0 {
		return Finding{check, true, "relay.tail_max_interval is off, so no limit applies", ""}
	}
	window := r.ConfidenceWindow.Seconds()
	each := ""
	if r.Shards > 1 {
		each = " per process"
	}
	return Finding{check, true, fmt.Sprintf("relay.dedup_memory_bytes (%d MB) carries %.0f events/s%s sustained with the confidence window of %s; for more set it to %.0f bytes per event and second",
		r.DedupMemory/1e6, math.Floor(0.8*float64(r.DedupMemory/rememberedBytes)/window), each, r.ConfidenceWindow, 1.25*rememberedBytes*window), ""}
}
