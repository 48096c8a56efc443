//go:build browser

package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// things is the topic of the events that rules react to.
const things = "things"

func (w *world) deliveries() *delivery.Store {
	w.t.Helper()
	s, err := delivery.Open(delivery.Config{Session: w.session, Keyspace: schema.DefaultKeyspace})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// react runs the rules hook, to a receiver with the result of take, and log.
func (w *world) react(take func(context.Context, notify.Message) error) (stop func()) {
	w.t.Helper()
	if _, err := kadm.NewClient(w.kafka).CreateTopic(w.t.Context(), 2, 1, nil, things); err != nil {
		w.t.Fatal(err)
	}
	r, err := react.New(react.Config{
		Kafka: []kgo.Opt{kgo.SeedBrokers(w.broker.ListenAddrs()...)}, Deliveries: w.deliveries(), Instance: "shop-1/42",
		Rules: []react.Rule{
			{Name: "big-orders", Topics: []string{things}, When: "data.n >= 0", To: "hook", From: react.FromStart, Attempts: 2, Backoff: 50 * time.Millisecond},
			{Name: "journal", Topics: []string{things}, To: "log", From: react.FromStart},
		},
		Targets: map[string]notify.Target{
			"hook": notify.TargetFunc(take), "log": notify.TargetFunc(func(context.Context, notify.Message) error { return nil }),
		},
		Poll: 100 * time.Millisecond, Report: 200 * time.Millisecond, DrainTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.background("react", r.Run)
}

// happen publishes events that the rules react to.
func (w *world) happen(payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		e := outbox.Event{
			ID: outbox.NewID(), AggregateText: "thing-1", Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte(p), ContentType: "application/json", CreatedAt: time.Now(),
		}
		r := &kgo.Record{Topic: things, Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := w.kafka.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// keep saves a delivery directly.
func (w *world) keep(change func(*delivery.Delivery)) gocql.UUID {
	w.t.Helper()
	id := outbox.NewID().String()
	r := &kgo.Record{
		Topic: things, Value: []byte(`{"n":1,"total":12345678901234567890.50}`), Timestamp: time.Now(),
		Headers: []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(id)}, {Key: outbox.HeaderType, Value: []byte("ThingHappened")}, {Key: "x-channel", Value: []byte("checkout")}},
	}
	e := kafkarecord.Decode(r)
	d := delivery.New("big-orders", "hook", r, &e)
	d.AggregateID = "0199f3c1-6f2e-7bb1-a3d7-2f6f0c1d9e10"
	d.State, d.Attempts = delivery.Delivered, 1
	d.Tried(time.Now(), 12*time.Millisecond, "")
	if change != nil {
		change(d)
	}
	time.Sleep(2 * time.Millisecond) // so that no two start in the same millisecond
	if err := w.deliveries().Save(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	return d.ID
}

// fail marks a delivery of keep as failed.
func fail(text string) func(*delivery.Delivery) {
	return func(d *delivery.Delivery) {
		d.State, d.Attempts, d.Error, d.Tries = delivery.Failed, 8, text, nil
		for i := range 8 {
			d.Tried(time.Now().Add(-time.Duration(8-i)*time.Minute), time.Duration(i)*700*time.Millisecond, text)
		}
	}
}

// An operator sees that a receiver is unavailable, finds the failed deliveries
// and the reason, and repeats them when the receiver is back; the console shows
// each step without a reload.
func TestReactions_FindRepeatWatch(t *testing.T) {
	t.Parallel()
	w := start(t)
	var away atomic.Bool
	away.Store(true)
	w.react(func(context.Context, notify.Message) error {
		if away.Load() {
			return errors.New("the receiver answered 503: down for maintenance")
		}
		return nil
	})
	b := w.open(access.Operator, "/reactions")
	b.sees(`[aria-label="Rules"]`, "big-orders")
	b.sees(`[aria-label="Rules"]`, "running")
	b.sees("main", "There are no deliveries.")
	w.happen(`{"n":12345678901234567890.50}`)
	b.sees(`[aria-label="Deliveries"]`, "down for maintenance") // without a reload
	b.sees(`[aria-label="Rules"]`, "down for maintenance")
	b.sees(`[data-key="failed-big-orders"]`, "1")
	b.click(`[data-key="failed-big-orders"]`)
	b.sees("main", "1 delivery, newest first")
	b.at("/reactions?rule=big-orders&state=failed")
	b.sees("main", "data.n >= 0")
	b.sees("main", "shop-1/42")
	b.click(`[aria-label="Deliveries"] tbody a`)
	b.sees("main h1", "ThingHappened to hook")
	b.sees(".detail-head .badge", "failed")
	b.sees(".payload", "12345678901234567890.50")
	b.has(".timeline .t-failed", 2)
	b.click("[data-key=act-repeat]")
	b.sees("dialog", "with the same delivery id")
	if eval[bool](b, `!document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be repeated without a reason")
	}
	away.Store(false)
	b.confirm("INC-500 they are back")
	b.sees(".detail-head .badge", "delivered")
	b.sees(".timeline", "after repeat 1")
	b.sees(".facts", "INC-500 they are back")
	b.sees(".facts", "mara-operator")
	b.visit("/audit")
	b.sees("tbody", "repeat delivery")
	b.click("tbody a")
	b.sees("main h1", "ThingHappened to hook")
}

// Many deliveries are repeated by the keyboard: filtered, selected, previewed,
// confirmed. Pending ones are skipped.
func TestReactions_RepeatManyByKeyboard(t *testing.T) {
	t.Parallel()
	w := start(t)
	var ids []gocql.UUID
	for range 3 {
		ids = append(ids, w.keep(fail("the receiver answered 500")))
	}
	w.keep(nil)
	w.keep(func(d *delivery.Delivery) { d.State, d.Rule = delivery.Pending, "other" })
	b := w.open(access.Operator, "/reactions")
	b.sees("main", "5 deliveries, newest first")
	b.types("/")
	b.focused("f-rule")
	b.fills("[data-key=f-rule]", "big-orders") // the protocol types the / too, as no keyboard does
	b.types("\r")
	b.sees("main", "4 deliveries, newest first")
	b.fills("[data-key=f-plugin]", "nobody")
	b.types("\r")
	b.sees("main", "No delivery matches.")
	b.click("[data-key=all]")
	b.sees("main", "5 deliveries")
	b.types("j")
	b.types("x") // the newest: it is pending
	b.sees(".selection", "1 delivery chosen")
	b.sees(".selection", "retried automatically")
	b.click("[data-key=pick-all]")
	b.types("r")
	b.sees("dialog", "4 deliveries")
	b.sees("dialog", "3 the receiver answered 500")
	b.sees("dialog", "1 delivery skipped")
	b.sees("dialog", "No process runs big-orders now")
	b.types("\x1b")
	b.gone("dialog")
	b.visit("/reactions?state=failed")
	b.sees("main", "3 deliveries")
	b.types("j")
	for range 3 {
		b.types("x")
		b.types("j")
	}
	b.sees(".selection", "3 deliveries chosen")
	b.types("r")
	b.sees("dialog .preview", "3 big-orders")
	b.confirm("INC-501")
	b.sees("main", "No delivery matches.")
	for _, id := range ids {
		if d, err := w.deliveries().Read(t.Context(), id); err != nil || d.State != delivery.Pending || d.Reason != "INC-501" {
			t.Errorf("the delivery is %s for %q, %v", d.State, d.Reason, err)
		}
	}
	b.visit("/audit")
	b.sees("tbody", "repeat deliveries")
}

// All deliveries that match a filter are repeated, including the ones of other
// pages, but none that started after the preview.
func TestReactions_RepeatAllThatMatch(t *testing.T) {
	t.Parallel()
	w := start(t)
	for range 60 {
		w.keep(fail("the receiver answered 500"))
	}
	b := w.open(access.Operator, "/reactions?state=failed")
	b.sees("main", "50 deliveries, newest first")
	b.click("[data-key=next]")
	b.sees("main", "10 deliveries, newest first, page 2")
	b.click("[data-key=back]")
	b.sees("main", "50 deliveries")
	b.click("[data-key=pick-all]")
	b.click("[data-key=whole]")
	b.click("[data-key=act-repeat]")
	b.sees("dialog", "60 deliveries")
	late := w.keep(fail("too late"))
	b.confirm("INC-502")
	b.sees("main", "1 delivery, newest first")
	b.sees("tbody", "too late")
	asked, err := w.deliveries().Repeats(t.Context(), "big-orders", gocql.UUID{}, 100)
	if err != nil || len(asked) != 60 {
		t.Errorf("%d are to be repeated, %v", len(asked), err)
	}
	if d, err := w.deliveries().Read(t.Context(), late); err != nil || d.State != delivery.Failed {
		t.Errorf("the late one is %s, %v", d.State, err)
	}
}

// A viewer sees reactions without actions, and the API refuses changes.
func TestRoles_Reactions(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.keep(fail("the receiver answered 500")).String()
	b := w.open(access.Viewer, "/reactions")
	b.click("[data-key=pick-all]")
	b.sees(".selection", "Your role is read-only")
	b.visit("/reactions/" + id)
	b.sees(".actions", "Your role is read-only")
	if n := b.count("[data-key^=act-]"); n > 0 {
		t.Errorf("a viewer is offered %d changes", n)
	}
	for _, path := range []string{"/v1/deliveries/" + id + "/repeat", "/v1/reactions/repeat"} {
		if got := eval[int](b, `fetch(%s, {method: "POST", body: "{}", headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("outbox.token")}}).then((r) => r.status)`, path); got != 403 {
			t.Errorf("%s by a viewer = %d, want 403", path, got)
		}
	}
}

// Text of rules, receivers and events is displayed, not executed.
func TestSafety_ReactionsDoNotRun(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.keep(func(d *delivery.Delivery) {
		fail(hostile)(d)
		d.Rule, d.Plugin, d.EventType, d.AggregateID, d.Topic, d.RepeatedBy, d.Reason, d.Repeats = hostile, hostile, hostile, hostile, hostile, hostile, hostile, 1
		d.Value = []byte(`{"` + strings.ReplaceAll(hostile, `"`, `\"`) + `":1}`)
		d.Headers = map[string][]byte{hostile: []byte(hostile)}
	}).String()
	err := w.deliveries().Report(t.Context(), []delivery.Report{{
		Rule: hostile, Instance: hostile, Definition: delivery.Definition{Plugin: hostile, Kind: "target", Topics: []string{hostile}, Types: []string{hostile}, When: hostile, Order: "none"},
		Progress: delivery.Progress{State: delivery.Running, StartedAt: time.Now(), LastError: hostile, LastErrorAt: new(time.Time)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Operator, "/reactions")
	b.sees(`[aria-label="Rules"]`, "onerror=")
	b.sees(`[aria-label="Deliveries"]`, "onerror=")
	b.unharmed("reactions")
	b.click(`[aria-label="Rules"] a`)
	b.sees(".facts", "onerror=")
	b.unharmed("rule")
	b.visit("/reactions/" + id)
	for _, at := range []string{"h1", ".error-text", ".timeline", ".payload", ".pairs", ".facts"} {
		b.sees(at, "onerror=")
	}
	b.click("[data-key=act-repeat]")
	b.sees("dialog", "onerror=")
	b.confirm(hostile)
	b.sees(".detail-head .badge", "pending")
	b.unharmed("delivery")
	b.visit("/audit")
	b.sees("tbody", "onerror=")
	b.unharmed("audit")
}

// reacted makes rules and deliveries of all kinds, and returns one that failed.
func (w *world) reacted() (id string) {
	w.t.Helper()
	for i := range 9 {
		w.keep(func(d *delivery.Delivery) {
			switch i % 3 {
			case 1:
				d.State, d.Attempts, d.Error, d.NextAttempt = delivery.Pending, 3, "dial tcp 10.0.3.7:443: connect: connection refused", time.Now().Add(4*time.Minute)
			case 2:
				d.Rule, d.Plugin = "journal", "log"
			}
		})
	}
	failed := w.keep(fail("POST https://hooks.example/orders: 500 Internal Server Error: the receiver says that its queue is full and will not take any more for now"))
	now, at := time.Now(), time.Now().Add(-time.Minute)
	def := delivery.Definition{Plugin: "hook", Kind: "target", Topics: []string{"OrderCreated", "OrderUpdated"}, When: "data.total > 1000.0", Order: "aggregate", Attempts: 8, TimeoutSeconds: 10, Concurrency: 4, Queue: 1000}
	var all []delivery.Report
	for i, rule := range []string{"big-orders", "journal", "loyalty"} {
		for n := range 2 {
			p := delivery.Progress{
				State: delivery.Running, StartedAt: now.Add(-time.Hour), Partitions: 3, Waiting: 41 * (2 - i) * n, OldestSeconds: float64(2000 * n * (1 - i)), Records: 1200, Delivered: 830,
				Failed: int64(3 * (1 - i) * n), Errors: int64(57 * n), UnderWay: n, Stuck: n * (2 - i) / 2,
			}
			p.OldestSeconds, p.Failed, p.Waiting = max(0, p.OldestSeconds), max(0, p.Failed), max(0, p.Waiting)
			if i == 0 && n == 1 {
				p.LastError, p.LastErrorAt = "POST https://hooks.example/orders: 500 Internal Server Error", &at
			}
			if i == 2 {
				p.State = delivery.Stopped
			}
			all = append(all, delivery.Report{Rule: rule, Instance: fmt.Sprintf("shop-%d/42", n+1), Definition: def, Progress: p})
		}
	}
	store := w.deliveries()
	w.background("reports", func(ctx context.Context) error { // so that every report is current
		for {
			if err := store.Report(ctx, all); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				return nil
			}
		}
	})
	return failed.String()
}
