//go:build browser

package browser

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

//go:embed testdata/axe-4.14.1.min.js.gz
var axeGzip []byte

func axeSource(t *testing.T) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(axeGzip))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// violation is a rule of WCAG that a page breaks.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// accessible checks the page against WCAG 2.2 A and AA with axe-core, and its
// width.
func (b *tab) accessible(where string) {
	b.t.Helper()
	for _, v := range eval[[]violation](b, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"]})
		.then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? n.failureSummary))})))`) {
		b.t.Errorf("%s: %s (%s): %s", where, v.ID, v.Help, strings.Join(v.Nodes, "; "))
	}
	if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		b.t.Errorf("%s: the page is %d pixels too wide", where, over)
	}
	for _, cut := range eval[[]string](b, unfit) {
		b.t.Errorf("%s: %s", where, cut)
	}
}

// unfit lists what does not fit its place: placeholders that are cut off, times on several lines,
// and buttons of a table's row that are in no line and no column.
const unfit = `(() => {
	const pen = document.createElement("canvas").getContext("2d"), all = (s) => [...document.querySelectorAll("main " + s)].filter((e) => e.checkVisibility());
	const room = (e) => { const s = getComputedStyle(e); pen.font = [s.fontWeight, s.fontSize, s.fontFamily].join(" "); return e.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight); };
	return [
		...all("input[placeholder]").filter((e) => { const n = room(e); return pen.measureText(e.placeholder).width > n; }).map((e) => "cut off: " + e.placeholder),
		...all(":is(time, .nowrap)").filter((e) => getComputedStyle(e).display === "inline" && e.getClientRects().length > 1).map((e) => "on several lines: " + e.innerText),
		...all("td:has(.button + .button)").filter((e) => { const of = (side) => new Set([...e.querySelectorAll(".button")].map((x) => Math.round(x.getBoundingClientRect()[side]))).size; return of("top") > 1 && of("right") > 1; }).map((e) => "in no line and no column: " + e.innerText),
	];
})()`

// furnish writes dead letters of all kinds, and a job.
func (w *world) furnish() (id string) {
	w.t.Helper()
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d).UTC().Truncate(time.Millisecond) }
	for i := range 24 {
		w.writeDeadLetter(func(l *dlq.DeadLetter) {
			l.FirstFailedAt = ago(time.Duration(i*i) * time.Minute)
			l.LastFailedAt = l.FirstFailedAt
			if i%3 == 0 {
				l.EventType, l.Topic = "OrderCancelled", "OrderCancelled"
			}
			switch i % 4 {
			case 1:
				l.Status, l.ErrorClass, l.ErrorCode, l.ErrorText = dlq.Pending, "attempts_used", "REQUEST_TIMED_OUT", "the request timed out after 2000 ms"
				l.Strategy, l.NextAttempt, l.Attempts = dlq.StrategyImmediate, time.Now().Add(5*time.Minute), 5
			case 2:
				l.Status, l.ErrorClass, l.ErrorCode, l.ErrorText = dlq.Pending, "breaker_open", "", "dial tcp 10.0.3.7:9092: connect: connection refused"
			case 3:
				l.ErrorClass, l.ErrorCode, l.ErrorText = "topic_not_allowed", "TOPIC_AUTHORIZATION_FAILED", "not authorized to write to topic payments"
			}
		})
	}
	head := w.writeDeadLetter(func(l *dlq.DeadLetter) {
		l.AggregateID = "0199f3c1-6f2e-7bb1-a3d7-2f6f0c1d9e10"
		l.Payload = []byte(`{"order_id":"0199f3c1-6f2e-7bb1-a3d7-2f6f0c1d9e10","status":"placed","country":"Finland","currency":"EUR","total":12345678901234567890.50,` +
			`"lines":[{"sku":"71053","description":"WHITE METAL LANTERN","quantity":2,"unit_price":"3.39"},{"sku":"85123A","description":"HEART T-LIGHT HOLDER","quantity":6,"unit_price":"2.55"}],"gift":false,"note":null}`)
		l.Headers = map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-channel": "checkout"}
		l.Metadata = map[string]string{"host": "relay-7c9f", "breaker": "closed"}
	})
	for i := range 3 {
		w.writeDeadLetter(func(l *dlq.DeadLetter) {
			l.AggregateID, l.Sequence, l.Status, l.ErrorClass = "0199f3c1-6f2e-7bb1-a3d7-2f6f0c1d9e10", int64(i+2), dlq.Blocked, "behind"
			l.ErrorCode, l.ErrorText, l.ErrorChain = "", "an earlier event of its aggregate is a dead letter", nil
		})
	}
	by := dlq.Actor{Name: "mara", Reason: "INC-311 the broker is back"}
	gone := []gocql.UUID{w.writeDeadLetter(nil), w.writeDeadLetter(nil)}
	for _, id := range gone {
		if err := w.deadLetters.Discard(w.t.Context(), id, by); err != nil {
			w.t.Fatal(err)
		}
	}
	if left, err := w.keeper.Purge(w.t.Context(), gone[:1], false, by); err != nil || left[0] != nil {
		w.t.Fatal(left, err)
	}
	if _, err := w.jobs().Create(w.t.Context(), jobs.Spec{Action: dlq.ActionReplay, Filter: dlq.Filter{ErrorClass: "attempts_used"}, Rate: 50, Canary: true}, by); err != nil {
		w.t.Fatal(err)
	}
	return head.String()
}

// view is a page, with a text that it shows.
type view struct{ name, path, sees string }

// everyPage fills the world, and returns all pages with a dead letter, an order and a message.
func (w *world) everyPage() (pages []view, id, o, m string) {
	w.t.Helper()
	id = w.furnish()
	jobs, err := w.jobs().List(w.t.Context(), mustID(w.t, "00000000-0000-0000-0000-000000000000"), 1)
	if err != nil || len(jobs) != 1 {
		w.t.Fatalf("Jobs() = %d, %v", len(jobs), err)
	}
	job := jobs[0].ID.String()
	o, m = w.shop()
	w.makeSubscription()
	w.topic()
	w.publish(`{"total":1}`)
	return []view{
		{"orders", "/orders?customer=17850", "orders, newest first"},
		{"orders-nobody", "/orders", "Enter a customer id"},
		{"order", "/orders/" + o, "history"},
		{"scheduled", "/scheduled", "next due first"},
		{"message", "/scheduled/" + m, "It waits for its time"},
		{"overview", "/", "Causes"},
		{"groups", "/groups", "topic_not_allowed"},
		{"dead_letters", "/dead-letters?status=open", "dead letters, newest first"},
		{"dead_letter", "/dead-letters/" + id, "Blocked events"},
		{"edit", "/dead-letters/" + id + "/edit", "Changes"},
		{"event", "/events/" + id, ""},
		{"events", "/events", "newest first"},
		{"aggregate", "/aggregates/" + o, "Timeline"},
		{"jobs", "/jobs", "Replay"},
		{"job", "/jobs/" + job, "History"},
		{"subscriptions", "/subscriptions", "active"},
		{"subscription", "/subscriptions/mail", "1 until another delivery"},
		{"subscription_missing", "/subscriptions/gone", "There is no subscription with this name"},
		{"topics", "/topics", topic},
		{"topic", "/topics/" + topic, "record, newest first"},
		{"archive", "/archive", "jsonl.zst"},
		{"audit", "/audit", ""},
		{"nothing", "/dead-letters?aggregate_id=none", "No dead letter matches"},
		{"missing", "/nowhere", "No such page"},
	}, id, o, m
}

// Every page and the main dialogs, light and dark, wide and narrow, checked by
// axe-core.
func TestLook_Accessible(t *testing.T) {
	t.Parallel()
	w := start(t)
	axe := axeSource(t)
	pages, id, o, m := w.everyPage()
	b := w.open(access.Admin, "/")
	b.sees(".live", "Live")
	for _, look := range []struct {
		theme string
		width int64
	}{{"light", 1280}, {"dark", 390}, {"dark", 1280}, {"light", 390}} {
		b.theme(look.theme)
		b.size(look.width, 860)
		for _, p := range pages {
			where := fmt.Sprintf("%s-%s-%d", p.name, look.theme, look.width)
			b.visit(p.path)
			b.sees("main", p.sees)
			b.load(axe)
			b.accessible(where)
			b.shoot(where)
		}
		b.visit("/dead-letters/" + id)
		b.click("[data-key=act-discard]")
		b.sees("dialog", "unless you reopen it")
		b.load(axe)
		where := fmt.Sprintf("confirm-%s-%d", look.theme, look.width)
		b.accessible(where)
		b.shoot(where)
		b.types("\x1b")
		b.gone("dialog")
		for name, at := range map[string][3]string{"cancel": {"/orders/" + o, "act-cancel", "Publishes"}, "take-back": {"/scheduled/" + m, "act-take-back", "It is never published"}, "deliver-message-now": {"/scheduled/" + m, "act-deliver-message-now", "It is published immediately"}, "pause": {"/subscriptions/mail", "act-pause", "Nothing is delivered"}, "seek": {"/subscriptions/mail", "act-seek", "will not be delivered"}, "redeliver": {"/subscriptions/mail", "act-redeliver", "Settled messages are delivered once more"}, "purge-subscription": {"/subscriptions/mail", "act-purge", "2 messages will never be delivered"}} {
			b.visit(at[0])
			b.click("[data-key=" + at[1] + "]")
			b.sees("dialog", at[2])
			b.load(axe)
			where := fmt.Sprintf("%s-%s-%d", name, look.theme, look.width)
			b.accessible(where)
			b.shoot(where)
			b.types("\x1b")
			b.gone("dialog")
		}
		b.types("?")
		b.sees("dialog", "Shortcuts")
		b.accessible("help")
	}
}

// Between the widths of a phone and a desktop the top bar needs more than one
// line.
func TestLook_EveryWidth(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.open(access.Admin, "/")
	for _, width := range []int64{320, 390, 701, 901, 1000, 1100, 1200, 1280, 1366, 1470} {
		b.size(width, 860)
		b.sees("#bar .tabs", "Audit") // drawn at that size
		if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("in %d pixels the page is %d too wide", width, over)
		}
		b.shoot(fmt.Sprintf("width-%d", width))
	}
}

// The console follows the theme of the system until the user selects another
// one; the selection is stored, and removed by selecting the system's theme.
func TestLook_Themes(t *testing.T) {
	t.Parallel()
	w := start(t)
	b := w.window()
	b.theme("dark")
	b.visit("/dead-letters#token=" + w.tokens[access.Viewer])
	b.sees("main", "There are no dead letters")
	dark := func(want bool, what string) {
		t.Helper()
		if !eventually(func() bool {
			return want == eval[bool](b, `(() => { const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number); return r + g + b < 200 })()`)
		}) {
			t.Error(what)
		}
	}
	dark(true, "the system is dark and the console is not")
	b.click(`[aria-label="Switch between light and dark"]`)
	dark(false, "it was switched and is still dark")
	b.visit("/dead-letters")
	dark(false, "the selection is not stored")
	b.types("t")
	dark(true, "the shortcut does not switch back")
	b.theme("light")
	dark(false, "after switching back it does not follow the system")
}

// An error text begins below its error class, however short it is.
func TestLook_ErrorTextOnItsOwnLine(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorClass, l.ErrorText = "timeout", "no answer" })
	b := w.open(access.Admin, "/dead-letters")
	b.size(1280, 860)
	b.sees("td[data-label=Error]", "no answer")
	if gap := eval[float64](b, `(() => { const [head, text] = document.querySelectorAll("td[data-label=Error] .clip"); return text.getBoundingClientRect().top - head.getBoundingClientRect().bottom; })()`); gap < -1 {
		t.Errorf("the error text begins %v pixels above the end of its error class", -gap)
	}
	b.shoot("error-text")
}
