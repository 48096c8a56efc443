//go:build browser

package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A mouse is not required: from the overview to a dead letter by shortcuts,
// through its dialog by Tab, and out again.
func TestKeyboard_Walk(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	b := w.open(access.Admin, "/")
	b.sees(".say-title", "1 dead letter needs your decision")
	b.goes("gl", "Dead letters")
	b.sees("tbody", "suspended")
	b.types("j")
	b.awaitFocus("row-" + id.String())
	b.types("x")
	b.sees(".selection", "1 dead letter chosen")
	b.types("x")
	b.gone(".selection-in")
	b.types("j" + kb.Enter)
	b.sees(".crumbs", id.String())
	b.awaitFocus("OrderCreated") // the heading

	b.types("s") // resolve by hand
	b.sees("dialog h2", "Resolve by hand")
	b.sees("dialog label", "Reason")
	b.awaitFocus("reason")
	for i := range 12 {
		b.types(kb.Tab)
		if !eval[bool](b, `Boolean(document.activeElement.closest("dialog"))`) {
			t.Fatalf("Tab leaves the dialog after %d times", i+1)
		}
	}
	b.types(kb.Escape)
	b.gone("dialog")
	if l, err := w.deadLetters.Read(t.Context(), id); err != nil || l.Version != 1 {
		t.Errorf("Escape changed the dead letter: version %d, %v", l.Version, err)
	}
	eval[bool](b, `(document.querySelector("[data-key=act-resolve]").focus(), true)`)
	b.types(kb.Enter)
	b.sees("dialog label", "Reason")
	b.awaitFocus("reason")
	b.types("settled in the shop")
	b.gone("dialog [data-key=yes][disabled]")
	b.types(kb.Enter)
	b.gone("dialog")
	b.sees(".detail-head .badge", "resolved")
	if l := w.until(id, "resolved", is(dlq.Resolved)); l.Outcome.Note != "settled in the shop" {
		t.Errorf("the outcome is %q", l.Outcome.Note)
	}
}

// Every clickable element can be reached by Tab, with a visible focus.
func TestKeyboard_AllReachedAndSeen(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.furnish()
	b := w.open(access.Admin, "/")
	o, m := w.shop()
	w.topic()
	w.publish(`{"total":1}`)
	for _, path := range []string{"/groups", "/dead-letters", "/dead-letters/" + id, "/dead-letters/" + id + "/edit", "/orders?customer=17850", "/orders/" + o, "/scheduled", "/scheduled/" + m, "/topics", "/topics/" + topic} {
		b.visit(path)
		b.sees(".live", "Live")
		b.gone(".loading")
		// Collects the reached elements and those without a visible focus.
		eval[bool](b, `(document.activeElement.blur(), window.scrollTo(0, 0), window.reached = new Set(), window.unseen = [], document.addEventListener("focusin", (e) => {
			reached.add(e.target);
			const s = getComputedStyle(e.target);
			if (s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 1.5) unseen.push(e.target.outerHTML.slice(0, 120));
		}), true)`)
		all := eval[int](b, `(window.wanted = [...document.querySelectorAll("a[href], button:not([disabled]), input, select, textarea, summary")].filter((e) => e.checkVisibility() && e.tabIndex >= 0), wanted.length)`)
		for range all + 30 {
			b.types(kb.Tab)
		}
		for _, e := range eval[[]string](b, `wanted.filter((e) => e.isConnected && !reached.has(e)).map((e) => e.outerHTML.slice(0, 120))`) {
			t.Errorf("%s: Tab does not reach %s", path, e)
		}
		for _, e := range eval[[]string](b, `[...new Set(unseen)]`) {
			t.Errorf("%s: the focus is invisible on %s", path, e)
		}
	}
}

// Shortcuts of single keys can be disabled, as WCAG 2.1.4 requires.
func TestKeyboard_ShortcutsOff(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Viewer, "/dead-letters")
	b.types("?")
	b.click("dialog .check input")
	b.types(kb.Escape)
	b.gone("dialog")
	b.types("go")
	b.sees("main h1", "Dead letters")
	b.types("?")
	b.click("dialog .check input")
	b.types(kb.Escape)
	b.gone("dialog")
	b.goes("go", "Overview")
}
