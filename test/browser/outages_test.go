//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// marked is what an outdated page lacks: everything that shows a state has its time, nothing is green, and
// nothing has the age of an oldest item. It is empty once it lacks nothing.
const marked = `(() => {
	const seen = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
	const says = (e) => ["::before", "::after"].some((p) => getComputedStyle(e, p).content.includes("as of "));
	const grey = (e) => { for (; e; e = e.parentElement) if (getComputedStyle(e).filter.includes("grayscale")) return true; return false; };
	const probe = document.body.appendChild(document.createElement("i"));
	const green = ["--ok", "--ok-soft", "--resolved", "--resolved-soft"].map((name) => { probe.style.backgroundColor = "var(" + name + ")"; return getComputedStyle(probe).backgroundColor; });
	probe.remove();
	const what = (says, all) => all.map((e) => says + ": " + e.outerHTML.slice(0, 120));
	return [
		...seen("#notice .lost-bar").length ? [] : ["no notice"],
		...what("without its time", seen("main :is(h1, .panel h2, .scroll:not(.panel *), .empty:not(.panel *), .say-title)").filter((e) => !says(e))),
		...what("green", seen("body *").filter((e) => green.includes(getComputedStyle(e).backgroundColor) && !grey(e))),
		...what("an age", seen("[data-ago=oldest]").filter((e) => e.innerText !== "unknown")),
	].join("\n");
})()`

// watch waits until an expression is empty in all tabs, and logs after which time it was.
func watch(t *testing.T, tabs map[string]*tab, what, expr string, args ...any) {
	t.Helper()
	began, took := time.Now(), make(map[string]time.Duration)
	lacks := ""
	if !eventually(func() bool {
		for name, b := range tabs {
			if _, done := took[name]; done {
				continue
			}
			if is := eval[string](b, expr, args...); is == "" {
				took[name] = time.Since(began).Round(100 * time.Millisecond)
			} else {
				lacks = name + ": " + is
			}
		}
		return len(took) == len(tabs)
	}) {
		t.Errorf("%s: %s", what, lacks)
	}
	slowest := ""
	for name, d := range took {
		if slowest == "" || d > took[slowest] {
			slowest = name
		}
	}
	t.Logf("%s: %d of %d pages, the last one (%s) after %s; %v", what, len(took), len(tabs), slowest, took[slowest], took)
}

// show opens pages, each in a tab.
func (w *world) show(pages ...view) map[string]*tab {
	w.t.Helper()
	tabs := make(map[string]*tab)
	for _, p := range pages {
		b := w.open(access.Admin, p.path)
		b.sees("main", p.sees)
		b.sees(".live", "Live")
		tabs[p.name] = b
	}
	return tabs
}

// fresh is empty in a page that is kept up to date.
const fresh = `document.body.classList.contains("stale") || document.querySelector("#notice .lost-bar") ? "stale" : ""`

// A frozen database marks every open page, and everything on it that shows a state. When it answers again, each page
// shows what changed since, without a reload.
func TestOutage_DatabaseFrozen(t *testing.T) {
	t.Parallel()
	w := start(t)
	pages, _, _, _ := w.everyPage()
	tabs := w.show(pages...)
	w.node.Faults().Freeze()
	t.Cleanup(w.node.Faults().Thaw)
	watch(t, tabs, "marked after the freeze", marked)
	w.node.Faults().Thaw()
	w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorClass = "meanwhile" })
	watch(t, tabs, "not marked after the thaw", fresh)
	changed := make(map[string]*tab)
	for _, name := range strings.Fields("overview groups dead_letters") {
		changed[name] = tabs[name]
	}
	watch(t, changed, "up to date after the thaw", `document.querySelector("main").innerText.includes("meanwhile") ? "" : "the new dead letter is missing"`)
}

// only are the tabs of these names.
func only(tabs map[string]*tab, names ...string) map[string]*tab {
	out := make(map[string]*tab)
	for _, name := range names {
		out[name] = tabs[name]
	}
	return out
}

// lacks is an expression that is empty when the first element of a selector contains a text.
const lacks = `((e) => e && e.innerText.includes(%[2]s) ? "" : (e?.innerText ?? "nothing").slice(0, 300))(document.querySelector(%[1]s))`

// Without a broker no lag, no state of a subscription and no offset is shown as known: what cannot be read is
// unknown, or its page is marked. When the broker is back, each page shows the truth without a reload.
func TestOutage_BrokerDown(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	w.raiseLimit()
	w.makeSubscription()
	id := w.store(10)[0].String()
	tabs := w.show(
		view{"overview", "/", "mail"}, view{"events", "/events", "published"}, view{"event", "/events/" + id, "Captured by"}, view{"topics", "/topics", topic},
		view{"topic", "/topics/" + topic + "?follow=on", "Following"}, view{"subscriptions", "/subscriptions", "active"}, view{"subscription", "/subscriptions/mail", "1 until another delivery"},
	)
	w.broker.Close()
	for range 12 {
		w.store(10)
	}
	watch(t, only(tabs, "overview"), "the outage is named", lacks, ".say.bad .say-title", "Broker unreachable since ")
	watch(t, only(tabs, "overview"), "the lag is unknown", lacks, `tr:has([data-key="q-mail"]) [data-label=Lag]`, "unknown")
	watch(t, only(tabs, "subscriptions"), "the state is unknown", lacks, `tr[data-id=mail] [data-label=State]`, "unknown")
	for _, label := range []string{"Lag", "In flight", "Oldest", "Dead letters"} {
		tabs["subscriptions"].sees(fmt.Sprintf("tr[data-id=mail] [data-label=%q]", label), "unknown")
	}
	watch(t, only(tabs, "topics", "topic", "subscription"), "marked", marked)
	for name, b := range tabs {
		b.shoot("broker-down-" + name)
	}

	w.startBroker()
	watch(t, only(tabs, "topics", "topic", "subscription"), "not marked", fresh)
	watch(t, only(tabs, "overview"), "the outage has ended", `document.querySelector(".say.bad") ? document.querySelector(".say").innerText : ""`)
	watch(t, only(tabs, "overview"), "the breaker is closed", lacks, ".overview .facts .badge", "closed")
	watch(t, only(tabs, "overview"), "the lag is known", `((e) => /^\d+$/.test(e.innerText) ? "" : e.innerText)(document.querySelector('tr:has([data-key="q-mail"]) [data-label=Lag]'))`)
	watch(t, only(tabs, "subscriptions"), "the state is known", lacks, `tr[data-id=mail] [data-label=State]`, "active")
	watch(t, only(tabs, "events"), "all events are published", `document.querySelectorAll("tbody .b-resolved").length === 13 ? "" : document.querySelector("main").innerText`)
	watch(t, only(tabs, "topics"), "the new records are counted", lacks, "tr[data-id="+topic+"]", "13")
	watch(t, only(tabs, "topic"), "the new records are followed", `document.querySelectorAll("tbody tr").length === 13 ? "" : document.querySelector("main").innerText`)
}

// A list distinguishes published dead letters from discarded ones, and filters by outcome. An address with a word
// in place of an id has no page, also where the API has something else there.
func TestDeadLetters_OutcomeAndAddress(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	if err := w.deadLetters.Discard(t.Context(), id, dlq.Actor{Name: "jo"}); err != nil {
		t.Fatal(err)
	}
	if err := w.deadLetters.ResolveByHand(t.Context(), w.writeDeadLetter(nil), dlq.Actor{Name: "jo"}); err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Viewer, "/dead-letters?status=resolved")
	b.sees("tr[data-id=\""+id.String()+"\"] .badge.b-archived", "resolved · discarded")
	b.sees("tbody .badge.b-resolved", "resolved · by hand")
	eval[bool](b, `((s) => { s.value = "discarded"; s.dispatchEvent(new Event("change", {bubbles: true})); return true; })(document.querySelector("[data-key=f-outcome]"))`)
	b.at("/dead-letters?status=resolved&outcome=discarded")
	b.has("tbody tr", 1)
	b = w.open(access.Operator, "/dead-letters/"+id.String())
	b.sees(".callout", "Discarded; it is not published.")
	b.click("[data-key=act-reopen]")
	b.confirm("INC-704 it was needed")
	b.sees(".detail-head .badge", "suspended")
	b.sees(".payload", `"n": 1`)
	for _, path := range []string{"/dead-letters/groups", "/dead-letters/stats", "/dead-letters/groups/edit", "/jobs/x", "/orders/x", "/scheduled/deliver-now"} {
		b.visit(path)
		b.sees("main h1", "No such page")
		if strings.Contains(b.text("main"), "undefined") {
			t.Errorf("%s shows %q", path, b.text("main"))
		}
	}
}

// In a storm of dead letters each number is separate from its word, in every width.
func TestOutage_StormFits(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.furnish()
	b := w.open(access.Viewer, "/")
	b.sees(".statuses", "suspended")
	for _, width := range []int64{320, 390, 558, 700, 901, 1000, 1100, 1280, 1440} {
		b.size(width, 860)
		got := eval[[]string](b, `[...document.querySelectorAll(".statuses a")].map((a) => {
			const number = a.querySelector("b");
			number.textContent = "108,036";
			const gap = number.getBoundingClientRect().left - a.querySelector(".badge").getBoundingClientRect().right;
			return gap < 8 || a.scrollWidth > a.clientWidth || !a.innerText.includes(" ") && !a.innerText.includes("\n") ? a.innerText + " " + gap : "";
		}).filter(Boolean)`)
		if len(got) > 0 {
			t.Errorf("in %d pixels the numbers are beside their words: %q", width, got)
		}
	}
}

// A process of a subscription that has ended without saying so is silent, and nobody knows its breaker.
func TestOutage_SubscriptionsDead(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.subscribe()
	if err := w.resources().Report(t.Context(), "mail", subscriptions.InstanceStatus{Instance: "shop-1/41", At: time.Now().Add(-time.Minute), Partitions: 2, Breaker: &subscriptions.BreakerStatus{State: "closed"}}); err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Viewer, "/subscriptions/mail")
	b.sees(".title .badge", "active")
	b.sees(`[aria-label="Processes"]`, "silent")
	if text := b.text(`[aria-label="Processes"]`); strings.Contains(text, "closed") {
		t.Errorf("the breaker of a dead process is shown: %s", text)
	}
}
