//go:build browser

package browser

import (
	"fmt"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A new dead letter appears without a reload, and the keyboard focus does not
// move.
func TestLive_ShowsAndKeepsTheFocus(t *testing.T) {
	t.Parallel()
	w := start(t)
	first := w.writeDeadLetter(nil).String()
	b := w.open(access.Operator, "/dead-letters")
	b.sees("tbody", "manual")
	b.sees(".live", "Live")
	eval[bool](b, `(document.querySelector("tbody a").focus(), true)`)
	second := w.writeDeadLetter(nil).String()
	b.sees(fmt.Sprintf(`tr[data-id=%q]`, second), "manual")
	b.focused("row-" + first) // where it was
}

// The server is unavailable: the page shows this and the time. When it is back,
// the message disappears and the page shows the changes of the meantime.
func TestLive_LostAndBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Operator, "/dead-letters")
	b.sees("main", "There are no dead letters")
	b.sees(".live", "Live")
	// The page's own retry after a second or more could come before the requested
	// one on a slow machine.
	b.load(`{ const own = setTimeout; window.setTimeout = (f, ms, ...args) => ms >= 1000 ? 0 : own(f, ms, ...args); }`)
	w.stop()
	b.sees("#notice", "Connection lost at")
	b.sees("#notice", "may be outdated")
	b.sees("#notice", "next attempt in")
	b.sees(".live", "Not live")
	b.shoot("lost")
	w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorClass = "meanwhile" })
	w.serve(w.addr)
	b.click("[data-key=retry]")
	b.sees("tbody", "meanwhile")
	b.gone("#notice .lost-bar")
	b.sees(".live", "Live")
}

// Several tabs of one browser work concurrently, although it opens a limited
// number of connections: a left page closes its stream.
func TestLive_PagesLeftGiveTheirStreamBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Viewer, "/")
	for range 10 {
		b.visit("/dead-letters")
		b.sees(".live", "Live")
	}
}

// The overview shows the rate and the latency of what the relays publish.
func TestLive_RateAndLatency(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	b := w.open(access.Viewer, "/")
	b.sees(".charts", "Events published per second")
	b.sees(".charts", "No event was published since this tab was opened.")
	label := `[...document.querySelectorAll(".charts svg[role=img]")].map((s) => s.getAttribute("aria-label")).find((l) => l.startsWith("Latency"))`
	if !eventually(func() bool {
		w.store(10, 10, 10)
		return eval[bool](b, `/^Latency from commit to broker in milliseconds, of the slowest relay: median [0-9.]+, 99th percentile [0-9.]+$/.test(`+label+`)`)
	}) {
		t.Errorf("the chart of the latency is %q", eval[string](b, label+` ?? ""`))
	}
	b.sees("dd", "from commit to broker")
	b.shoot("overview-rate")
}
