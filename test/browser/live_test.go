//go:build browser

package browser

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

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
	b.sees("tbody", "suspended")
	b.sees(".live", "Live")
	eval[bool](b, `(document.querySelector("tbody a").focus(), true)`)
	second := w.writeDeadLetter(nil).String()
	b.sees(fmt.Sprintf(`tr[data-id=%q]`, second), "suspended")
	b.awaitFocus("row-" + first) // where it was
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

// The database does not answer: the page is not called live, and the message fits a phone. When it answers again,
// the message disappears.
func TestLive_DatabaseUnreachable(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Viewer, "/")
	b.sees(".live", "Live")
	w.node.Faults().Freeze()
	t.Cleanup(w.node.Faults().Thaw)
	b.sees("#notice", "The database cannot be reached. The page may be outdated since ")
	b.sees(".live", "Outdated")
	b.size(390, 860)
	if below := eval[float64](b, `(() => { const [sign, text] = document.querySelector(".lost-bar").children; return text.getBoundingClientRect().top - sign.getBoundingClientRect().bottom; })()`); below >= 0 {
		t.Errorf("on a phone the text begins %v pixels below its sign", below)
	}
	b.shoot("database-unreachable")
	b.size(1280, 860)
	w.node.Faults().Thaw()
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

// The overview shows the rate and the latency of published events.
func TestLive_RateAndLatency(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	b := w.open(access.Viewer, "/")
	b.sees(".charts", "Events published per second")
	b.sees(".charts", "No latency was measured in the last ")
	label := `[...document.querySelectorAll(".charts svg[role=img]")].map((s) => s.getAttribute("aria-label")).find((l) => l.startsWith("Latency"))`
	now := `[...document.querySelectorAll("dd")].some((d) => d.textContent.includes("from commit to broker"))` // while events are published
	if !eventually(func() bool {
		w.store(10, 10, 10)
		return eval[bool](b, `/^Latency from commit to broker in milliseconds: median [0-9.]+, 99th percentile [0-9.]+$/.test(`+label+`) && `+now)
	}) {
		t.Errorf("the chart of the latency is %q, and beside the events: %t", eval[string](b, label+` ?? ""`), eval[bool](b, now))
	}
	b.shoot("overview-rate")
}

// The charts show the recorded history of a day and of a week, with a gap where nothing was
// recorded.
func TestHistory_DayAndWeek(t *testing.T) {
	t.Parallel()
	w := start(t)
	now := time.Now().UTC().Truncate(5 * time.Minute)
	for age := 6 * 24 * time.Hour; age >= 0; age -= 5 * time.Minute {
		if age > 30*time.Hour && age < 50*time.Hour {
			continue // no process ran
		}
		at, wave := now.Add(-age), math.Sin(age.Hours()/4)
		if err := w.session.Query("INSERT INTO outbox.admin_history (day, at, open, total, published, p50_ms, p99_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
			at.Truncate(24*time.Hour), at, int64(40+30*wave), int64(1000-age.Minutes()/60), 900+400*wave, 2+wave, 9+4*wave).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	b := w.open(access.Viewer, "/")
	b.sees(".charts", "Open dead letters")
	b.sees(".switch", "7 days")
	b.load(axeSource(t))
	b.click(`[data-key="tab-Period of the charts-day"]`)
	label := func(begins string) string {
		return eval[string](b, `[...document.querySelectorAll(".charts svg[role=img]")].map((s) => s.getAttribute("aria-label")).find((l) => l.startsWith("`+begins+`")) ?? ""`)
	}
	for begins, want := range map[string]string{
		"Open dead letters over the last 1 d": "Open dead letters over the last 1 d: now 40",
		"Events published per second":         "Events published per second, by all relays: now 900.0",
		"Latency":                             "Latency from commit to broker in milliseconds: median 2.0, 99th percentile 9.0",
	} {
		if !eventually(func() bool { return label(begins) == want }) {
			t.Errorf("the chart is %q, want %q", label(begins), want)
		}
	}
	b.sees(".charts h3 .muted", "events in 1 d")
	b.accessible("overview of a day")
	b.types(kb.ArrowRight)
	if !eventually(func() bool { return label("Open dead letters over the last 7 d") != "" }) {
		t.Errorf("the chart of the week is missing: %q", label("Open"))
	}
	parts := `document.querySelector(".charts .line").getAttribute("d").split("M").length - 1`
	if n := eval[int](b, parts); n != 2 {
		t.Errorf("the line has %d parts, want 2 with the gap between", n)
	}
	if fill := eval[string](b, `getComputedStyle(document.querySelector(".charts .area.s-out")).fill`); fill == "rgb(0, 0, 0)" {
		t.Error("the area below the rate of events is black")
	}
	b.shoot("overview-week")
	b.accessible("overview of a week")
	b.click(`nav [data-path="/dead-letters"]`)
	b.sees("h1", "Dead letters")
	b.click(`[data-key="brand"]`)
	b.sees(".switch [aria-selected=true]", "7 days")
}
