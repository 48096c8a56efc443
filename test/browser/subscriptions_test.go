//go:build browser

package browser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// things is the topic of the subscription mail.
const things = "things"

// happen publishes an event for each payload.
func (w *world) happen(payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateID: outbox.IDFromText("thing-1"), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte(p), ContentType: "application/json", CreatedAt: time.Now(),
		}
		r := &kgo.Record{Topic: things, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := w.kafka.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// resources opens the subscriptions.
func (w *world) resources() *store.Store {
	w.t.Helper()
	s, err := store.Open(w.session, schema.DefaultKeyspace, store.WithTimeouts(patience, patience))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// redeliverer redelivers messages for the API and its jobs.
func (w *world) redeliverer() *redeliver.Service {
	return redeliver.New(redeliver.Config{Store: w.resources(), DeadLetters: w.deadLetters, Kafka: testworld.Kafka{kgo.SeedBrokers(w.brokers...)}.Client})
}

func newEngine(t *testing.T, w *world) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{
		Kafka: []kgo.Opt{kgo.SeedBrokers(w.brokers...)}, Store: w.resources(), DeadLetters: w.deadLetters, Instance: "shop-1/42",
		Push: plugin.Destinations{Plugins: map[string]plugin.Plugin{"crm": plugin.Func(func(context.Context, plugin.Event) error {
			return plugin.Unavailable(errors.New("503 Service Unavailable"))
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// subscribe runs the subscription mail on things.
func (w *world) subscribe() {
	w.t.Helper()
	if _, err := kadm.NewClient(w.kafka).CreateTopic(w.t.Context(), 2, 1, nil, things); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.engine.Put(w.t.Context(), subscriptions.Subscription{Name: "mail", Topics: []string{things}, Ordering: subscriptions.OrderingNone, Start: "earliest", VisibilityTimeout: time.Hour, MaxReceive: 5}, "mara"); err != nil {
		w.t.Fatal(err)
	}
	w.background("subscriptions", w.engine.Run)
}

// receive leases n messages of mail.
func (w *world) receive(n int) (out []subscriptions.Message) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for len(out) < n {
		some, err := w.engine.Receive(ctx, "mail", subscriptions.Receive{Max: n - len(out), Wait: time.Second})
		if ctx.Err() != nil {
			w.t.Fatalf("%d messages are received, want %d: %v", len(out), n, err)
		}
		out = append(out, some...) // errors while it starts
	}
	return out
}

// acknowledge acknowledges messages of mail.
func (w *world) acknowledge(messages []subscriptions.Message) {
	w.t.Helper()
	all := make([]subscriptions.Settle, len(messages))
	for i := range messages {
		all[i] = subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: messages[i].Receipt}
	}
	w.settle(all...)
}

// makeSubscription makes a subscription with a message in each state.
func (w *world) makeSubscription() {
	w.t.Helper()
	w.subscribe()
	w.happen(`{"n":1}`, `{"n":2}`, `{"n":3}`, `{"n":4}`, `{"n":5}`)
	got := w.receive(4)
	w.acknowledge(got[:1])
	w.settle(
		subscriptions.Settle{Action: subscriptions.ActionNack, Receipt: got[1].Receipt, Delay: time.Hour, Reason: "the mail server answered 451"},
		subscriptions.Settle{Action: subscriptions.ActionReject, Receipt: got[2].Receipt, Reason: "no such address"},
	)
}

// settle settles messages of mail.
func (w *world) settle(all ...subscriptions.Settle) {
	w.t.Helper()
	results, err := w.engine.Settle(w.t.Context(), "mail", all)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range results {
		if r.Code != subscriptions.CodeOK {
			w.t.Fatalf("settled as %+v", r)
		}
	}
}

// An operator finds a subscription, sees its messages in each state, opens its dead
// letters, pauses and resumes it, and moves its position. Every change is in the audit.
func TestSubscriptions_FindPauseSeek(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.makeSubscription()
	b := w.open(access.Operator, "/subscriptions")
	b.sees(`[aria-label="Subscriptions"]`, "active")
	b.sees(`[data-key="dead-mail"]`, "1")
	b.click(`[data-key="row-mail"]`)
	b.at("/subscriptions/mail")
	b.sees(`[aria-label="Messages"]`, "1 leased to consumers")
	b.sees(`[aria-label="Messages"]`, "1 until another delivery")
	b.sees(`[aria-label="Messages"]`, "1 open")
	b.sees(`[aria-label="Partitions"]`, "shop-1/42")
	b.sees(`[aria-label="Processes"]`, "2 partitions")
	if n := b.count("[data-key=act-purge]"); n > 0 {
		t.Error("an operator is offered a purge, which needs an administrator")
	}
	b.click("[data-key=act-pause]")
	b.sees("dialog", "Nothing is delivered until it is resumed")
	b.confirm("INC-700 the mail server is down")
	b.sees(".detail-head .badge", "paused")
	b.click("[data-key=act-resume]")
	b.confirm("INC-700 it is back")
	b.sees(".detail-head .badge", "active")
	b.click("[data-key=act-seek]")
	b.sees("dialog", "will not be delivered")
	to := func(v string) (asksTime bool) {
		return eval[bool](b, `(() => { const s = document.querySelector("[data-key=seek-to]"); s.value = %s; s.dispatchEvent(new Event("change", { bubbles: true })); return document.querySelector("[data-key=seek-at]").checkVisibility(); })()`, v)
	}
	for v, want := range map[string]bool{"latest": false, "time": true} {
		if got := to(v); got != want {
			t.Errorf("seek to %s asks for a time: %v, want %v", v, got, want)
		}
	}
	to("earliest")
	b.sees("dialog", "also those that were acknowledged")
	b.confirm("INC-701 the mails were lost")
	b.sees(`[aria-label="Messages"]`, "0 until another delivery")
	if s, err := w.engine.Get(t.Context(), "mail"); err != nil || s.Paused || s.ChangedBy != "mara-operator" {
		t.Errorf("the subscription is %+v, %v", s, err)
	}
	b.click("[data-key=dead-letters]")
	b.at("/dead-letters?table=subscription.mail")
	b.sees("tbody", "rejected")
	b.visit("/audit?what=subscriptions")
	b.sees("tbody", "INC-701 the mails were lost")
	b.sees("tbody", "pause subscription")
	b.click("tbody a")
	b.sees("main h1", "mail")
}

// After a fault of a consumer an operator has messages delivered once more, by the keyboard alone:
// each change of the form needs another preview, and the job shows the acknowledgements.
func TestSubscriptions_Redeliver(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{Redeliverer: w.redeliverer()}).Run)
	w.subscribe()
	w.happen(`{"n":1}`, `{"n":2}`, `{"n":3}`)
	first := w.receive(3)
	w.acknowledge(first)
	b := w.open(access.Operator, "/subscriptions/mail")
	b.theme("dark")
	b.sees(`[aria-label="Messages"]`, "0 records not settled")
	eval[bool](b, `(document.querySelector("[data-key=act-redeliver]").focus(), true)`)
	b.types(kb.Enter)
	b.sees("dialog", "Settled messages are delivered once more")
	b.awaitFocus("redeliver-key")
	b.types("nobody" + kb.Enter)
	b.sees("dialog [role=status]", `none of 3 records has the key "nobody"`)
	b.fills("dialog [data-key=reason]", "INC-703")
	b.has("dialog [data-key=yes][disabled]", 1)
	key := first[0].Key
	b.fills("dialog [data-key=redeliver-key]", key)
	b.types(kb.Enter)
	b.sees("dialog [role=status]", "3 messages of 1 key.")
	b.has("dialog [data-key=yes][disabled]", 0)
	b.fills("dialog [data-key=redeliver-filter]", "data.n >")
	b.has("dialog [data-key=yes][disabled]", 1)
	b.types(kb.Enter)
	b.sees("dialog [role=status]", "filter: line 1")
	b.fills("dialog [data-key=redeliver-filter]", "data.n > 1")
	b.click("dialog [data-key=redeliver-preview]")
	b.sees("dialog [role=status]", "2 messages of 1 key.")
	b.sees("dialog [role=status]", "offsets")
	b.load(axeSource(t))
	for _, width := range []int64{1440, 390} {
		b.size(width, 860)
		where := fmt.Sprintf("redeliver-preview-%d", width)
		b.accessible(where)
		b.shoot(where)
	}
	b.confirm("INC-703 mail 2.3 lost them")
	b.sees("main h1", "Redeliver: mail · key "+key+" · data.n > 1")
	w.acknowledge(w.receive(2))
	b.sees(".title .badge", "done")
	b.sees(".outcome.o-resolved", "Acknowledged")
	b.sees(".outcome.o-resolved", "2")
	b.sees("main", "Records read")
	b.accessible("job of a redelivery")
	b.shoot("redelivery")
	b.visit("/jobs")
	b.sees("tbody", "Redeliver")
	b.sees("tbody", "mail · key "+key)
	b.visit("/audit?what=subscriptions")
	b.sees("tbody", "redeliver subscription mail, 2 messages, key "+key+", filter data.n > 1")
}

// An administrator purges the waiting messages after their number was shown.
func TestSubscriptions_Purge(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.makeSubscription()
	b := w.open(access.Admin, "/subscriptions/mail")
	b.click("[data-key=act-purge]")
	b.sees("dialog", "2 messages will never be delivered")
	b.fills("dialog [data-key=typed]", "2")
	b.confirm("INC-702")
	b.sees(`[aria-label="Messages"]`, "0 until another delivery")
	b.sees(`[aria-label="Messages"]`, "1 leased to consumers")
	b.visit("/audit?what=subscriptions")
	b.sees("tbody", "purge subscription")
	if n := b.count("tbody tr"); n != 1 {
		t.Errorf("%d entries, want the purge without its preview", n)
	}
}

// A destination fails: the page of the subscription shows its breaker, and list and overview
// show that nothing is delivered and why, on a phone with a label at each number.
func TestSubscriptions_Breaker(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.subscribe()
	if _, err := w.engine.Put(w.t.Context(), subscriptions.Subscription{Name: "crm", Topics: []string{things}, Start: "earliest", MaxExtension: time.Hour, Push: &subscriptions.Push{To: "crm"}}, "mara"); err != nil {
		t.Fatal(err)
	}
	w.happen(`{"n":1}`)
	b := w.open(access.Viewer, "/subscriptions/crm")
	b.sees(`[aria-label="Processes"]`, "breaker")
	b.sees(`[aria-label="Processes"]`, "503 Service Unavailable")
	b.sees(`[aria-label="Subscription"]`, "Longest delivery")
	b.sees(".title .badge", "suspended")
	b.visit("/subscriptions")
	b.sees(`tr[data-id="crm"] .badge`, "suspended")
	b.visit("/")
	b.sees(".say.warn .say-title", "Subscription crm delivers nothing; 1 message waits.")
	b.sees(".say.warn", "503 Service Unavailable")
	b.sees(`[aria-label="Subscriptions"] .danger-text`, "it delivers nothing: 503 Service Unavailable")
	b.size(390, 860)
	b.sees(`[aria-label="Subscriptions"]`, "crm")
	if labels := eval[[]string](b, `[...document.querySelectorAll('[aria-label="Subscriptions"] tr:has([data-key="q-crm"]) td')].map((c) => getComputedStyle(c, "::before").content)`); !slices.Equal(labels, []string{`"Subscription"`, `"Lag"`, `"Oldest"`, `"Dead letters"`}) {
		t.Errorf("on a phone the labels are %q", labels)
	}
	b.load(axeSource(t))
	b.accessible("overview of a failing destination")
	b.shoot("destination-fails")
}

// A browser whose clock is wrong shows ages and states by the clock of the server, and settles by it.
func TestSubscriptions_WrongBrowserClock(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.makeSubscription()
	for _, hours := range []int{-3, 3} {
		b := w.window()
		call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(
			`(() => { const Real = Date, ahead = %d * 3600_000; Date = class extends Real { constructor(...a) { a.length ? super(...a) : super(Date.now()); } static now() { return Real.now() + ahead; } }; })()`, hours)})
		b.visit("/subscriptions/mail#token=" + w.tokens[access.Admin])
		b.sees("main", "1 until another delivery")
		b.sees("main", "reported ")
		if text := b.text("main"); strings.Contains(text, "silent") || strings.Contains(text, "in 2 h") || strings.Contains(text, "3 h") {
			t.Errorf("with a clock that is wrong by %d h the page shows\n%s", hours, text)
		}
		if !eventually(func() bool { // the header has whole seconds: newer messages stay
			b.click("[data-key=act-purge]")
			b.sees("dialog", "message")
			defer b.gone("dialog")
			defer b.types("\x1b")
			return strings.Contains(b.text("dialog"), "2 messages will never be delivered")
		}) {
			t.Errorf("with a clock that is wrong by %d h there is nothing to purge", hours)
		}
	}
}

// A viewer sees subscriptions without actions, and the API refuses changes.
func TestRoles_Subscriptions(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.makeSubscription()
	b := w.open(access.Viewer, "/subscriptions/mail")
	b.sees(".actions", "Your role is read-only")
	b.sees(`[aria-label="Leases"]`, "1 of 5")
	if n := b.count("[data-key^=act-]") + b.count("[data-key^=end-]"); n > 0 {
		t.Errorf("a viewer is offered %d changes", n)
	}
	for _, change := range []string{"POST pause", "POST resume", "POST seek", "POST redeliver", "POST purge", "DELETE leases/things:0:0:1"} {
		method, path, _ := strings.Cut(change, " ")
		if got := eval[int](b, `fetch(%s, {method: %s, body: '{"to":"earliest"}', headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("outbox.token")}}).then((r) => r.status)`, "/v1/subscriptions/mail/"+path, method); got != 403 {
			t.Errorf("%s by a viewer = %d, want 403", change, got)
		}
	}
}
