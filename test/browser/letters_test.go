//go:build browser

package browser

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// An order is too large for its topic. An operator sees it on the overview, finds
// the letter, looks at the preview, replays it, and watches it resolve; what was
// parked behind it follows, in order and once.
func TestLetter_FindPreviewReplayWatch(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	ids := w.store(4000, 10, 10)
	w.until(ids[0], "manual", is(dlq.Manual))
	w.until(ids[2], "parked", is(dlq.Parked))

	b := w.open(access.Operator, "/")
	b.sees(".say-title", "1 letter waits for you")
	b.sees(".bars", "record_too_large")
	b.click(`[data-key="c-record_too_large"]`)
	b.sees("tbody", "manual")
	if got, want := b.path(), "/letters?status=open&error_class=record_too_large"; got != want {
		t.Errorf("the address is %s, want %s", got, want)
	}
	b.click("tbody a")
	b.sees("main", "Parked behind it")
	b.sees(".payload", "12345678901234567890.50")
	if n := b.count(".followers .b-parked"); n != 2 {
		t.Errorf("%d followers are shown, want 2", n)
	}
	if got, want := eval[string](b, `document.querySelector('[data-key=trace]').href`), "https://traces.example/trace/4bf92f3577b34da6a3ce929d0e0e4736"; got != want {
		t.Errorf("the trace leads to %s, want %s", got, want)
	}

	w.mend()
	b.click("[data-key=act-replay]")
	b.sees("dialog", "1 letter")
	b.sees("dialog .preview", "2 events")
	if eval[bool](b, `!document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be confirmed without a reason")
	}
	b.confirm("INC-311 the limit was raised")
	b.sees(".letter-head .badge", "resolved") // by the stream: the page was not loaded again
	b.sees(".timeline", "Published")
	b.sees(".timeline", "INC-311 the limit was raised")

	w.until(ids[2], "resolved", is(dlq.Resolved))
	got := w.records(3)
	for i, id := range ids {
		if n := len(got[id.String()]); n != 1 {
			t.Errorf("event %d is %d times in the topic, want once", i+1, n)
		}
	}
	b.visit("/audit")
	b.sees("tbody", "INC-311 the limit was raised")
	b.sees("tbody", "mara-operator")
	b.visit("/")
	b.sees(".say-title", "No dead letters are open")
}
