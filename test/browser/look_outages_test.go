//go:build browser

package browser

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// looks photographs pages in four combinations of theme and size, and checks them in two.
func looks(t *testing.T, tabs map[string]*tab, state string) {
	t.Helper()
	axe := axeSource(t)
	for name, b := range tabs {
		b.load(axe)
		for i, look := range []struct {
			theme string
			width int64
		}{{"light", 1440}, {"dark", 390}, {"dark", 1440}, {"light", 390}} {
			if i == 2 && os.Getenv("OUTBOX_SCREENSHOTS") == "" {
				break
			}
			b.theme(look.theme)
			b.size(look.width, 860)
			where := fmt.Sprintf("%s-%s-%s-%d", state, name, look.theme, look.width)
			if i < 2 {
				b.accessible(where)
			}
			b.shoot(where)
		}
	}
}

// In calm and in each outage every page that shows states is accessible and fits.
func TestLook_Outages(t *testing.T) {
	t.Parallel()
	w := start(t)
	end := w.relay()
	w.raiseLimit()
	w.makeSubscription()
	ids := w.store(10, 10, 10)
	pages := []view{
		{"overview", "/", "mail"},
		{"events", "/events", "published"},
		{"event", "/events/" + ids[0].String(), "Captured by"},
		{"topics", "/topics", topic},
		{"topic", "/topics/" + topic + "?follow=on", "Following"},
		{"subscriptions", "/subscriptions", "active"},
		{"subscription", "/subscriptions/mail", "1 until another delivery"},
		{"groups", "/groups", "rejected"},
		{"dead_letters", "/dead-letters", "rejected"},
	}
	tabs := w.show(pages...)
	looks(t, tabs, "calm")

	slow := w.node.Faults().MustAdd(faults.Rule{Name: "slow", Effect: faults.Effect{Delay: 700 * time.Millisecond}})
	for _, p := range pages {
		began := time.Now()
		b := w.show(p)[p.name]
		t.Logf("with +700 ms for each request, %s is shown after %s", p.name, time.Since(began).Round(100*time.Millisecond))
		b.shoot("slow-" + p.name)
	}
	if err := w.node.Faults().Remove(slow); err != nil {
		t.Fatal(err)
	}

	w.node.Faults().Freeze()
	t.Cleanup(w.node.Faults().Thaw)
	watch(t, tabs, "frozen", marked)
	looks(t, tabs, "frozen")
	w.node.Faults().Thaw()
	watch(t, tabs, "thawed", fresh)

	for i := range 558 {
		w.writeDeadLetter(func(l *dlq.DeadLetter) {
			l.ErrorText = fmt.Sprintf("the record has %d bytes, the topic accepts 2000", 4000+i)
			if i%5 == 0 {
				l.ErrorClass, l.ErrorText = "refused", "POLICY_VIOLATION: the request violates the policy of the cluster"
			}
		})
	}
	watch(t, only(tabs, "overview"), "the storm is shown", lacks, ".say-title", "559 dead letters need your decision")
	watch(t, only(tabs, "groups"), "the storm is grouped", `document.querySelectorAll(".group").length === 3 ? "" : document.querySelector("main").innerText`)
	watch(t, only(tabs, "overview"), "the storm is in the chart", `((label) => label && !label.startsWith("Dead letters per minute: 0.0") ? "" : label ?? "no chart")([...document.querySelectorAll(".charts svg[role=img]")].map((s) => s.getAttribute("aria-label")).find((l) => l.startsWith("Dead letters per")))`)
	looks(t, only(tabs, "overview", "groups", "dead_letters"), "storm")

	w.broker.Close()
	for range 12 {
		w.store(10)
	}
	watch(t, only(tabs, "overview"), "the outage is named", lacks, ".say.bad .say-title", "Broker unreachable since ")
	watch(t, only(tabs, "topics", "topic", "subscription"), "marked", marked)
	watch(t, only(tabs, "events"), "events are unknown", lacks, "tbody", "unknown")
	watch(t, only(tabs, "events"), "the reason is above them", lacks, ".callout.warn:has(+ .scroll)", "Not all records were read")
	looks(t, tabs, "broker")
	w.startBroker()
	watch(t, tabs, "not marked", fresh)
	watch(t, only(tabs, "overview"), "the broker is back", lacks, ".say.warn .say-title", "559 dead letters need your decision")

	end()
	say := func(at time.Time) {
		t.Helper()
		status := `{"state":"running","ready":true,"breaker":{"state":"closed"},"behind_seconds":2.5,"in_flight":3,"rates":{"published":120.4,"failures":0,"found":{}},"latency":{"p50_ms":2,"p99_ms":9}}`
		if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', 'payments', ?, 'pod-a/1', ?, ?)", table, at, status).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	say(time.Now().Add(-time.Minute))
	w.store(10)
	watch(t, only(tabs, "overview"), "the dead relay is named", lacks, ".say.bad .say-title", "Relay payments has sent no heartbeat since ")
	for _, known := range []string{"closed", "120 events/s", "p99"} {
		if text := tabs["overview"].text(`[aria-label="Relay payments"]`); strings.Contains(text, known) {
			t.Errorf("the panel shows %q of a dead relay:\n%s", known, text)
		}
	}
	looks(t, only(tabs, "overview"), "relay-dead")
	say(time.Now().Add(time.Hour))
	watch(t, only(tabs, "overview"), "the relay is back", lacks, ".overview", "120 events/s")
}
