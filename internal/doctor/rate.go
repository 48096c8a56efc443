package doctor

import (
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// rememberedBytes is the memory of an event that the sweep reader has not read: its id, and
// half of one that is kept longer.
const rememberedBytes = 60

// checkRate reports the event rate up to which the tail reader never waits for the sweep
// reader. It never fails, because the actual rate is unknown.
func checkRate(c *app.Config) Finding {
	const check = "event rate"
	r := c.Relay
	if r.TailMaxInterval < 0 {
		return Finding{check, true, "relay.tail_max_interval is off, so no limit applies", ""}
	}
	window := r.ConfidenceWindow.Seconds()
	return Finding{check, true, fmt.Sprintf("relay.max_remembered (%d) carries %.0f events/s sustained with the confidence window of %s, some %d MB; for more set it to 1.25 × events per second × %.0f",
		r.MaxRememberedEvents, float64(int(0.8*float64(r.MaxRememberedEvents)/window)), r.ConfidenceWindow, r.MaxRememberedEvents*rememberedBytes/1e6, window), ""}
}
