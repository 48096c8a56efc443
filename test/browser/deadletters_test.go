//go:build browser

package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// An order is too large for its topic. An operator sees the problem on the
// overview, finds the dead letter, reads the preview, replays it, and sees it
// resolved; the events blocked by it follow, in order and once.
func TestDeadLetter_FindPreviewReplayWatch(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	ids := w.store(4000, 10, 10)
	w.until(ids[0], "suspended", is(dlq.Suspended))
	w.until(ids[2], "blocked", is(dlq.Blocked))

	b := w.open(access.Operator, "/")
	b.sees(".say-title", "1 dead letter needs your decision")
	b.sees(".bars", "record_too_large")
	b.sees(".overview", "Relay orders")
	b.sees(".overview .badge.b-resolved", "closed")
	b.click(`[data-key="c-record_too_large"]`)
	b.sees("tbody", "suspended")
	b.at("/dead-letters?status=open&error_class=record_too_large")
	b.click("tbody a")
	b.sees("main", "Blocked events")
	b.sees(".payload", "12345678901234567890.50")
	b.has(".followers .b-blocked", 2)
	if got, want := eval[string](b, `document.querySelector('[data-key=trace]').href`), "https://traces.example/trace/4bf92f3577b34da6a3ce929d0e0e4736"; got != want {
		t.Errorf("the trace leads to %s, want %s", got, want)
	}

	w.raiseLimit()
	b.click("[data-key=act-replay]")
	b.sees("dialog", "1 dead letter")
	b.sees("dialog .preview", "2 events")
	if eval[bool](b, `!document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be confirmed without a reason")
	}
	b.confirm("INC-311 the limit was raised")
	b.sees(".detail-head .badge", "resolved") // by the event stream: the page was not loaded again
	b.sees(".timeline", "Published")
	b.sees(".timeline", "INC-311 the limit was raised")

	w.until(ids[2], "resolved", is(dlq.Resolved))
	got := w.records(3)
	for i, id := range ids {
		if n := len(got[id.String()]); n != 1 {
			t.Errorf("event %d is %d times in the topic, want once", i+1, n)
		}
	}
	b.visit("/events/" + ids[2].String())
	b.sees("main", "Captured by")
	b.sees(".timeline", "captured by the")
	b.sees(".timeline", "breaker closed")
	b.visit("/audit")
	b.sees("tbody", "INC-311 the limit was raised")
	b.sees("tbody", "mara-operator")
	b.visit("/")
	b.sees(".say-title", "No dead letters are open")
}

// A dead letter whose topic refuses it is published to another one, and its blocked events follow.
func TestDeadLetter_Redirect(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	ids := w.store(4000, 10)
	w.until(ids[0], "suspended", is(dlq.Suspended))
	b := w.open(access.Admin, "/dead-letters/"+ids[0].String())
	b.click("[data-key=act-redirect]")
	b.sees("dialog", "published to another topic")
	b.fills("dialog [data-key=reason]", "INC-312 their own topic is too small")
	b.fills("dialog [data-key=topic]", "orders.elsewere")
	b.click("dialog [data-key=yes]")
	b.sees("dialog", `topic "orders.elsewere" does not exist: create it, or correct the name`)
	if _, err := kadm.NewClient(w.kafka).CreateTopic(t.Context(), 1, 1, nil, "orders.elsewhere"); err != nil {
		t.Fatal(err)
	}
	b.fills("dialog [data-key=topic]", "orders.elsewhere")
	b.confirm("INC-312 their own topic is too small")
	b.sees("main h1", "Redirect")
	b.visit("/audit")
	b.sees("tbody", "dead letter, to topic orders.elsewhere, reason INC-312")
	l := w.until(ids[0], "redirected", func(l *dlq.DeadLetter) bool { return l.Edit != nil })
	if l.Edit.Topic != "orders.elsewhere" {
		t.Errorf("it is to be published to %q", l.Edit.Topic)
	}
	b.visit("/dead-letters/" + ids[0].String())
	b.sees(".timeline", "Redirected")
}

// An invalid event is edited: the editor shows the error and the difference,
// and a new event replaces the original. The dead letter keeps the original.
func TestDeadLetter_EditAndReplay(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	ids := w.store(4000, 10)
	before := w.until(ids[0], "suspended", is(dlq.Suspended))
	w.until(ids[1], "blocked", is(dlq.Blocked))
	b := w.open(access.Admin, "/dead-letters/"+ids[0].String())
	b.click("[data-key=edit]")
	b.sees("#problems", "Nothing is changed")
	if !eval[bool](b, `document.querySelector("[data-key=ask]").disabled`) {
		t.Error("an unchanged event can be replayed as edited")
	}
	b.fills("[data-key=payload]", `{"order":"shorter","total":12345678901234567890.50`)
	b.sees("#problems", "The payload is not valid JSON: line 1")
	b.types(`}`)
	b.sees("#problems", "It can be replayed")
	b.sees(".d-added", "shorter")
	b.fills(`[data-key="hv-0"]`, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
	b.sees(".d-added", "b7-00")
	b.click("[data-key=ask]")
	b.sees("dialog", "The original is kept")
	b.fills("dialog [data-key=reason]", "INC-312 the note was too long")
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
	b.sees(".detail-head .badge", "resolved")
	b.sees(".timeline", "INC-312 the note was too long")
	b.sees(".facts", "Published as")

	after := w.until(ids[0], "resolved", is(dlq.Resolved))
	if string(after.Payload) != string(before.Payload) {
		t.Error("the edit changed the original")
	}
	w.until(ids[1], "resolved", is(dlq.Resolved))
	got := w.records(2)
	if n := len(got[ids[0].String()]); n != 0 {
		t.Errorf("the original is %d times in the topic, want never", n)
	}
	if v := got[after.EditedID.String()]; len(v) != 1 || v[0] != `{"order":"shorter","total":12345678901234567890.50}` {
		t.Errorf("the edited event is in the topic as %q", v)
	}
}

// Another user changes the dead letter during an edit: nothing is overwritten,
// and the text can still be copied.
func TestDeadLetter_EditConflict(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	b := w.open(access.Admin, "/dead-letters/"+id.String()+"/edit")
	b.sees("#problems", "Nothing is changed")
	if err := w.deadLetters.Unblock(t.Context(), id, dlq.Actor{Name: "jo", Reason: "meanwhile"}); err != nil {
		t.Fatal(err)
	}
	b.fills("[data-key=payload]", `{"n":2}`)
	b.sees("#problems", "Another user has changed the dead letter")
	if got := eval[string](b, `document.querySelector("[data-key=payload]").value`); got != `{"n":2}` {
		t.Errorf("the text is %s, want the typed text", got)
	}
	b.click("[data-key=reread]")
	b.sees("#problems", "Nothing is changed")
	b.fills("[data-key=payload]", `{"n":3}`)
	b.sees("#problems", "It can be replayed")
}

// A second edit starts with the last edit, which is the event that would be
// published.
func TestDeadLetter_EditBeginsWithTheLastEdit(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	once := dlq.Edit{Payload: []byte(`{"n":"mended"}`), ContentType: "application/json", Headers: map[string]string{"mended": "once"}}
	if _, err := w.deadLetters.Edit(t.Context(), id, once, dlq.Actor{Name: "jo", Reason: "test"}, 0); err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Admin, "/dead-letters/"+id.String()+"/edit")
	b.sees("#problems", "Nothing is changed")
	for field, want := range map[string]string{"payload": `{"n":"mended"}`, "type": "application/json", "hk-0": "mended", "hv-0": "once"} {
		if got := eval[string](b, `document.querySelector("[data-key=`+field+`]").value`); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
}

// Events that are blocked by a dead letter with a pending decision are not
// published automatically.
func TestOverview_ShowsPendingDecisions(t *testing.T) {
	t.Parallel()
	w := start(t)
	first := w.writeDeadLetter(func(l *dlq.DeadLetter) { l.AggregateID = "order-1" })
	b := w.open(access.Viewer, "/")
	b.sees(".say-title", "1 dead letter needs your decision")
	b.sees(".say", "No relay has sent a heartbeat")
	for n := range int64(2) {
		w.writeDeadLetter(func(l *dlq.DeadLetter) {
			l.AggregateID, l.Sequence, l.Status, l.ErrorClass = "order-1", 2+n, dlq.Blocked, "behind"
		})
	}
	b.sees(".bars", "record_too_large · blocks 2")
	b.visit("/groups")
	b.sees(".group-count", "blocks 2")
	b.has(".group", 1)
	b.visit("/dead-letters?status=blocked")
	b.click("tbody tr a")
	b.sees(".actions .button:first-child", "Go to what blocks it")
	b.click("[data-key=blocker]")
	b.sees("h1", "OrderCreated")
	b.sees(".crumbs", first.String())
	b.visit("/")
	w.relay()
	b.sees(".say", "2 events are blocked behind other dead letters.")
	b.sees(".overview", "Relay orders")
	if said := eval[string](b, `document.querySelector(".say").textContent`); strings.Contains(said, "automatically") || strings.Contains(said, "No relay") {
		t.Errorf("of dead letters that all wait for %s the overview shows %q", first, said)
	}
}

// The broker is unavailable: the overview shows that the breaker is open, and
// the reason.
func TestOverview_BreakerOpens(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	w.raiseLimit()
	w.store(10)
	b := w.open(access.Viewer, "/")
	b.sees(".say-title", "No dead letters are open")
	b.sees(".overview .badge.b-resolved", "closed")
	b.click(".overview summary")
	b.sees(".lag", "of 16 · 1 stream")
	b.click(".overview summary")
	w.broker.Close()
	for range 12 {
		w.store(10)
	}
	b.sees(".say.bad .say-title", "Broker unreachable since ")
	b.sees(".say.bad .say-title", "events wait")
	b.sees(".overview", "connection refused")
	b.shoot("breaker-open")
}

// Each table of a relay has a panel, named with its table, and the total is that of the owners
// since they began.
func TestOverview_SeveralTables(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i, name := range []string{table, "shop.events"} {
		status := fmt.Sprintf(`{"state":"running","ready":true,"breaker":{"state":"closed"},"started_at":%q,"published_total":%d,"shard":{"index":0,"count":1}}`, time.Now().Add(-2*time.Hour).Format(time.RFC3339), 700+i)
		if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'orders/00-of-01', ?, 'pod-a/1', ?, ?)",
			name, time.Now(), status).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	b := w.open(access.Viewer, "/")
	b.sees(".overview h2", "Relay orders, "+table)
	b.sees(".overview h2", "Relay orders, shop.events")
	b.sees(".figures", "1,401 published in 2 h")
}

// A relay with one shard has one panel with the details of its owner, and its standbys. A
// relay without shards of an earlier version, stopped, is not shown beside it.
func TestOverview_OneShard(t *testing.T) {
	t.Parallel()
	w := start(t)
	speak := func() error {
		for _, row := range [][3]string{
			{"orders", "pod-0/1", `{"state":"stopped"}`},
			{"orders", "pod-a/1/shards", `{"state":"running","ready":true,"sharing":{"shards":1,"owned":[0],"joined":true}}`},
			{"orders", "pod-b/1/shards", `{"state":"running","ready":true,"sharing":{"shards":1,"owned":[],"joined":true}}`},
			{"orders/00-of-01", "pod-a/1", `{"state":"running","ready":true,"breaker":{"state":"closed"},"behind_seconds":2.5,"in_flight":3,"rates":{"published":120.4,"failures":0,"found":{}},"lag":[{"name":"0x6b1c","behind_seconds":2.5}],"shard":{"index":0,"count":1}}`},
		} {
			if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?, ?)",
				row[0], table, row[1], time.Now(), row[2]).Exec(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := speak(); err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Viewer, "/")
	w.background("instances", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := speak(); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
	b.sees(".overview", "Relay orders")
	b.sees(".overview", "120 events/s")
	b.sees(".overview", "pod-b/1")
	b.sees(".say-title", "No dead letters are open")
	if n := eval[int](b, `document.querySelectorAll("table.shards").length`); n != 0 {
		t.Errorf("%d tables of shards are shown for one shard", n)
	}
	b.shoot("one-shard")
	// The lags are folded; unfolded, they stay so while heartbeats draw them again.
	open := func() bool { return eval[bool](b, `document.querySelector(".overview details").open`) }
	if open() {
		t.Error("the lags of the streams are unfolded at first")
	}
	b.click(".overview summary")
	b.load(`document.querySelector(".overview details").dataset.before = ""`)
	b.gone(".overview details[data-before]")
	if !open() {
		t.Error("the lags of the streams are folded by a heartbeat")
	}
	b.sees(".overview .lag", "0x6b1c")
}

// A relay with several instances has one panel: owners of shards, unowned
// shards, and standbys.
func TestOverview_InstancesThatShare(t *testing.T) {
	t.Parallel()
	w := start(t)
	say := func(relay, instance, status string) {
		if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?, ?)",
			relay, table, instance, time.Now(), status).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	speak := func() {
		member := `{"state":"running","ready":true,"sharing":{"shards":4,"owned":%s,"joined":true}}`
		say("orders", "pod-a/1", fmt.Sprintf(member, "[0,1]"))
		say("orders", "pod-b/1", fmt.Sprintf(member, "[2]"))
		say("orders", "pod-c/1", `{"state":"running","problems":["no heartbeat is acknowledged by the broker"],"sharing":{"shards":4,"owned":[],"joined":false}}`)
		shard := `{"state":"%s","ready":true,"breaker":{"state":"closed"},"behind_seconds":2.5,"in_flight":3,"rates":{"published":120.4,"failures":0,"found":{}},"shard":{"index":%d,"count":4}}`
		for i, instance := range []string{"pod-a/1", "pod-a/1", "pod-b/1"} {
			say(fmt.Sprintf("orders/%02d-of-04", i), instance, fmt.Sprintf(shard, "running", i))
		}
		say("orders/03-of-04", "pod-b/1", fmt.Sprintf(shard, "stopped", 3))
	}
	speak()
	b := w.open(access.Viewer, "/")
	end := w.background("instances", func(ctx context.Context) error {
		for ctx.Err() == nil {
			speak()
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return nil
	})
	b.sees("table.shards", "pod-a/1")
	b.sees("table.shards", "none")
	b.sees(".say.bad .say-title", "No instance owns shard 3 of relay orders")
	b.sees(".say.bad", "No heartbeat is acknowledged by the broker.")
	b.shoot("shards")
	// A phone shows the owners of shards as columns, too.
	b.size(390, 844)
	b.sees("table.shards", "none") // drawn at that size
	if got := eval[string](b, `getComputedStyle(document.querySelector("table.shards td")).display`); got != "table-cell" {
		t.Errorf("on a phone a cell of the shards is shown as %s", got)
	}
	if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		t.Errorf("the page is %d pixels too wide", over)
	}
	b.shoot("shards-phone")
	// A relay that was stopped as a whole is no problem.
	end()
	for _, instance := range []string{"pod-a/1", "pod-b/1", "pod-c/1"} {
		say("orders", instance, `{"state":"stopped","sharing":{"shards":4,"owned":[],"joined":false}}`)
	}
	for i, instance := range []string{"pod-a/1", "pod-a/1", "pod-b/1", "pod-b/1"} {
		say(fmt.Sprintf("orders/%02d-of-04", i), instance, fmt.Sprintf(`{"state":"stopped","breaker":{"state":"closed"},"shard":{"index":%d,"count":4}}`, i))
	}
	b.sees(".say.info .say-title", "Relay orders was stopped")
	b.has("table.shards .b-archived", 4)
	b.has("table.shards .b-failed", 0)
}

// The audit trail contains the changes of a relay by a command, with a link to
// the relays.
func TestAudit_OfARelay(t *testing.T) {
	t.Parallel()
	w := start(t)
	for action, target := range map[string]string{"reshard-relay": "orders", "repair-events": "orders", "request-backfill": "orders", "end-lease": "mail", "put-subscription": "mail"} {
		err := w.session.Query("INSERT INTO "+schema.DefaultKeyspace+".admin_audit (day, id, actor, role, action, target, detail, reason, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
			time.Now().UTC().Truncate(24*time.Hour), gocql.TimeUUID(), "ann", access.Admin, action, target, `{}`, "more hosts", "done").Exec()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := w.open(access.Viewer, "/audit?what=subscriptions")
	b.sees("tbody", "end lease")
	b.has(`tbody a[href="/console/subscriptions/mail"]`, 2)
	b = w.open(access.Viewer, "/audit?what=relays")
	b.sees("tbody", "reshard relay")
	b.sees("tbody", "repair events")
	b.has(`tbody a[href="/console/"]`, 3)
	b.click("tbody a")
	b.sees("main h1", "Overview")
	b.at("/")
}
