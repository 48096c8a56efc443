//go:build browser

package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// written returns the events in the CDC log.
func (w *world) written(ctx context.Context, _ string, since time.Time, limit int) (out []admin.WrittenEvent, err error) {
	err = relay.NewLog(relay.Config{Session: w.session, Brokers: w.brokers, Keyspace: schema.DefaultKeyspace, Settings: relay.Settings{Name: "orders"}}).Written(ctx, since, limit, func(e relay.WrittenEvent) {
		out = append(out, admin.WrittenEvent{ID: e.ID.String(), AggregateID: e.AggregateID.String(), Type: e.Type, Sequence: e.Sequence, At: e.At})
	})
	return out, err
}

// The newest events are listed with their states, and lead to the timeline of an aggregate, which any page of
// events finds by the id.
func TestEvents_NewestAndTheTimelineOfAnAggregate(t *testing.T) {
	t.Parallel()
	w := start(t)
	waits := w.store(10, 10)
	b := w.open(access.Viewer, "/")
	b.goes("ge", "Events")
	row := func(i int) string { return fmt.Sprintf(`tr[data-id=%q]`, waits[i]) }
	b.sees(row(0), "waiting")
	w.relay()
	b.sees(row(0), "published")
	b.sees(row(1), "published")
	b.shoot("events")
	aggregate := eval[string](b, `document.querySelector("tbody tr td[data-label=Aggregate] a").title`)
	b.click(`tbody tr td[data-label=Aggregate] a`)
	b.sees("main h1", "Aggregate")
	b.has(`.timeline li[data-kind=stored]`, 2)
	b.has(`.timeline li[data-kind=published]`, 2)
	b.shoot("aggregate")
	b.visit("/dead-letters")
	b.fills(`[data-key=find]`, aggregate)
	b.click(`.finder button`)
	b.sees("main h1", "Aggregate")
	b.sees(".timeline", waits[1].String())
	b.visit("/aggregates/no-such%2Fone")
	b.sees("main", "This aggregate is unknown.")
}

// What a filter finds is saved as a file of JSON or CSV, with payloads on request.
func TestDeadLetters_Export(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorClass, l.ErrorText = "refused", `=1+1, "quoted"` }).String()
	other := w.writeDeadLetter(nil).String()
	b := w.open(access.Viewer, "/dead-letters?error_class=refused")
	b.sees("tbody", "refused")
	b.load(`{ const made = URL.createObjectURL; URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return made.call(URL, blob); }; }`)
	export := func(form string, payload bool) (text string) {
		t.Helper()
		eval[bool](b, `(window.saved = "", true)`)
		b.click("[data-key=export]")
		b.sees("dialog", "Export dead letters")
		eval[bool](b, `((f) => { document.querySelector("dialog [data-key=form]").value = f; return true; })`+fmt.Sprintf("(%q)", form))
		if payload {
			b.click("dialog [data-key=with-payload]")
		}
		b.click("dialog [data-key=yes]")
		if !eventually(func() bool { text = eval[string](b, `window.saved`); return text != "" }) {
			t.Fatal("nothing was saved")
		}
		b.gone("dialog")
		return text
	}
	if text := export("csv", false); !strings.Contains(text, id) || strings.Contains(text, other) || !strings.Contains(text, `"'=1+1, ""quoted"""`) || strings.Contains(text, "payload") {
		t.Errorf("the file is %q", text)
	}
	if text := export("json", true); !strings.Contains(text, id) || !strings.Contains(text, `"payload_text": "{\"n\":1}"`) || !strings.HasPrefix(text, "{\n \"items\": [") || strings.Contains(text, `"next"`) {
		t.Errorf("the file is %q", text)
	}
}
