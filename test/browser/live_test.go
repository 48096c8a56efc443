//go:build browser

package browser

import (
	"fmt"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A new letter shows by itself, and somebody who is at the keyboard stays where
// she is.
func TestLive_ShowsAndKeepsTheFocus(t *testing.T) {
	t.Parallel()
	w := start(t)
	first := w.bury(nil).String()
	b := w.open(access.Operator, "/letters")
	b.sees("tbody", "manual")
	b.sees(".live", "Live")
	eval[bool](b, `(document.querySelector("tbody a").focus(), true)`)
	second := w.bury(nil).String()
	b.sees(fmt.Sprintf(`tr[data-id=%q]`, second), "manual")
	b.focused("row-" + first) // where it was
}

// The server goes away: the page says so and since when. It comes back: the page
// says nothing any more and shows what happened meanwhile.
func TestLive_LostAndBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Operator, "/letters")
	b.sees("main", "There are no dead letters")
	b.sees(".live", "Live")
	// By itself the page would try again in a second or more: whether before somebody
	// asks it to depends on the machine.
	b.load(`{ const own = setTimeout; window.setTimeout = (f, ms, ...args) => ms >= 1000 ? 0 : own(f, ms, ...args); }`)
	w.stop()
	b.sees("#notice", "Connection lost at")
	b.sees("#notice", "may be outdated")
	b.sees("#notice", "next attempt in")
	b.sees(".live", "Not live")
	b.shoot("lost")
	w.bury(func(l *dlq.DeadLetter) { l.ErrorClass = "meanwhile" })
	w.serve(w.addr)
	b.click("[data-key=retry]")
	b.sees("tbody", "meanwhile")
	b.gone("#notice .lost-bar")
	b.sees(".live", "Live")
}

// Many tabs of one browser work side by side, though it opens only so many
// connections: the stream of a page that was left is given back.
func TestLive_PagesLeftGiveTheirStreamBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Viewer, "/")
	for range 10 {
		b.visit("/letters")
		b.sees(".live", "Live")
	}
}
