//go:build browser

package browser

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// A whole group is replayed: preview, canary, job, its progress and its report.
func TestBulk_GroupIsReplayed(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	ids := w.tooLarge(9)
	w.raiseLimit()
	b := w.open(access.Operator, "/groups")
	b.sees(".group", "record_too_large")
	b.sees(".group-count", "9")
	b.click(".group [data-key=act-replay]")
	b.sees("dialog", "9 dead letters of 9 aggregates")
	b.confirm("INC-311 the limit was raised")
	b.sees("main h1", "Replay: open · record_too_large · OrderCreated")
	b.sees(".title .badge", "done")
	b.sees(".outcome.o-resolved", "9")
	b.sees("main", "9 of 9 dead letters examined")
	b.shoot("job-done")
	for _, id := range ids {
		w.until(id, "resolved", is(dlq.Resolved))
	}
	got := w.records(len(ids))
	for _, id := range ids {
		if n := len(got[id.String()]); n != 1 {
			t.Errorf("event %s is %d times in the topic, want once", id, n)
		}
	}
	b.visit("/groups")
	b.sees("main", "There are no groups, because no dead letter is open")
}

// A canary pauses its job while the cause is there. After the fix the job is resumed, and the
// dead letters of the canary are replayed, too.
func TestBulk_CanaryIsReplayedAgain(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.relay()
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	ids := w.tooLarge(4)
	b := w.open(access.Operator, "/groups")
	b.click(".group [data-key=act-replay]")
	b.confirm("INC-312 is it fixed?")
	b.sees(".title .badge", "paused")
	w.raiseLimit()
	b.click("[data-key=job-resume]")
	b.sees("dialog", "Also replay what failed again in the canary, as another job: 1 dead letter")
	b.confirm("INC-312 now it is")
	b.sees("#toasts", "Job started: replay 1 dead letter of the canary.")
	b.sees(".title .badge", "done")
	for _, id := range ids {
		w.until(id, "resolved", is(dlq.Resolved))
	}
	b.click("#toasts a")
	b.sees("main h1", "Replay: 1 chosen")
	b.sees(".outcome.o-resolved", "1")
}

// A dead letter written between the preview and the confirmation is not
// included: the confirmed number is that of the preview.
func TestBulk_LaterDeadLettersAreExcluded(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	ids := []gocql.UUID{w.writeDeadLetter(nil), w.writeDeadLetter(nil)}
	b := w.open(access.Admin, "/groups")
	b.click(".group [data-key=act-discard]")
	b.sees("dialog", "Type 2 to confirm")
	late := w.writeDeadLetter(nil)
	b.fills("dialog [data-key=reason]", "test data")
	b.fills("dialog [data-key=typed]", "2")
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
	b.sees(".title .badge", "done")
	for _, id := range ids {
		w.until(id, "discarded", func(l *dlq.DeadLetter) bool { return l.Outcome.Kind == dlq.OutcomeDiscarded })
	}
	if l, err := w.deadLetters.Read(t.Context(), late); err != nil || l.Status != dlq.Suspended {
		t.Errorf("the dead letter from after the preview is %s (%v), want suspended", l.Status, err)
	}
}

// Dead letters are selected in the table; discarding them requires their
// number.
func TestBulk_ChosenAreDiscarded(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	var ids []gocql.UUID
	for range 4 {
		ids = append(ids, w.writeDeadLetter(nil))
	}
	b := w.open(access.Admin, "/dead-letters?status=suspended")
	b.sees("main", "4 dead letters, newest first")
	for _, id := range ids[:3] {
		b.click(`[data-key="pick-` + id.String() + `"]`)
	}
	b.sees(".selection", "3 dead letters chosen")
	b.click(".selection [data-key=act-discard]")
	b.sees("dialog", "Type 3 to confirm")
	b.fills("dialog [data-key=reason]", "test data")
	if !eval[bool](b, `document.querySelector("dialog [data-key=yes]").disabled`) {
		t.Error("it can be confirmed without typing the number")
	}
	b.click("dialog summary")
	b.fills("dialog [data-key=rate]", "2.5")
	b.fills("dialog [data-key=typed]", "3")
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
	b.sees("main h1", "Discard: 3 chosen")
	b.sees("main", "2.5 dead letters/s at most")
	b.sees(".title .badge", "done")
	for _, id := range ids[:3] {
		w.until(id, "discarded", func(l *dlq.DeadLetter) bool { return l.Outcome.Kind == dlq.OutcomeDiscarded })
	}
	if l, err := w.deadLetters.Read(t.Context(), ids[3]); err != nil || l.Status != dlq.Suspended {
		t.Errorf("the unselected dead letter is %s (%v), want suspended", l.Status, err)
	}
}

// A job can be paused and resumed by an operator; cancelling is the admin's.
func TestBulk_JobIsSteered(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	job, err := w.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionSuspend, IDs: []gocql.UUID{id}}, dlq.Actor{Name: "jo", Reason: "x"})
	if err != nil {
		t.Fatal(err)
	}
	b := w.open(access.Operator, "/jobs/"+job.ID.String())
	b.sees(".title .badge", "queued")
	if n := b.count("[data-key=job-cancel]"); n != 0 {
		t.Error("an operator is offered to cancel")
	}
	b.click("[data-key=job-pause]")
	b.confirm("wait for the broker")
	b.sees(".title .badge", "paused")
	b.sees(".timeline", "wait for the broker")
	b.click("[data-key=job-resume]")
	b.confirm("it is back")
	b.sees(".title .badge", "queued")
	b = w.open(access.Admin, "/jobs/"+job.ID.String())
	b.click("[data-key=job-cancel]")
	b.confirm("no longer wanted")
	b.sees(".title .badge", "cancelled")
	// An operator can pause a job that requires an admin; only an admin can resume
	// it.
	discard, err := w.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionDiscard, IDs: []gocql.UUID{id}}, dlq.Actor{Name: "jo", Reason: "x"})
	if err != nil {
		t.Fatal(err)
	}
	b = w.open(access.Operator, "/jobs/"+discard.ID.String())
	b.click("[data-key=job-pause]")
	b.confirm("are you sure?")
	b.sees(".title .badge", "paused")
	if n := b.count("[data-key=job-resume]"); n != 0 {
		t.Error("an operator is offered to resume a job that discards")
	}
	b = w.open(access.Admin, "/jobs/"+discard.ID.String())
	b.click("[data-key=job-resume]")
	b.confirm("I am")
	b.sees(".title .badge", "queued")
}

// A text finds dead letters, a click with Shift chooses a range of them, and a job acts on the dead
// letters that the text finds.
func TestBulk_TextAndRange(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{}).Run)
	other := w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorText = "the topic does not exist" })
	for range 4 {
		w.writeDeadLetter(nil)
	}
	b := w.open(access.Admin, "/dead-letters?status=suspended")
	b.sees("main", "5 dead letters, newest first")
	rows := eval[[]string](b, `[...document.querySelectorAll("tbody tr")].map((r) => r.dataset.id)`)
	pick := func(row int, shift bool) {
		eval[bool](b, `(document.querySelector("[data-key=pick-" + CSS.escape(%s) + "]").dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, shiftKey: %s})), true)`, rows[row], shift)
	}
	pick(1, false)
	b.sees(".selection", "1 dead letter chosen")
	pick(3, true)
	b.sees(".selection", "3 dead letters chosen")
	pick(2, false)
	b.sees(".selection", "2 dead letters chosen")
	b.click(".selection [data-key=none]")
	pick(4, true) // no box was used before it
	b.sees(".selection", "1 dead letter chosen")

	b.fills("[data-key=f-text]", "DOES not")
	b.types("\r")
	b.sees("main", "1 dead letter, newest first")
	b.at("/dead-letters?status=suspended&text=DOES+not")
	b.click("[data-key=pick-all]")
	b.click(".selection [data-key=act-discard]")
	b.confirm("test data")
	w.until(other, "discarded", func(l *dlq.DeadLetter) bool { return l.Outcome.Kind == dlq.OutcomeDiscarded })
}

// A click on the name of a column sorts the rows of the page, a second one in reverse, and a
// third one as the server does. The choice of rows stays.
func TestList_Sorts(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 4 {
		w.writeDeadLetter(func(l *dlq.DeadLetter) {
			l.Attempts, l.ErrorClass = []int{9, 100, 1, 20}[i], []string{"refused", "timeout", "refused", "broker"}[i]
		})
	}
	b := w.open(access.Viewer, "/dead-letters?status=suspended")
	b.sees("main", "4 dead letters, newest first")
	column := func(label string) string {
		return strings.Join(eval[[]string](b, `[...document.querySelectorAll("tbody td[data-label=" + CSS.escape(%s) + "]")].map((c) => (c.querySelector(".clip") ?? c).textContent)`, label), " ")
	}
	b.click("[data-key^=pick-]:not([data-key=pick-all])")
	b.sees(".selection", "1 dead letter chosen")
	unsorted := column("Attempts")
	for i, want := range []string{"1 9 20 100", "100 20 9 1", unsorted} {
		b.click("[data-key=sort-Attempts]")
		if got := column("Attempts"); got != want {
			t.Errorf("after %d clicks the attempts are %s, want %s", i+1, got, want)
		}
		if got, want := eval[string](b, `document.querySelector("[aria-sort]")?.getAttribute("aria-sort") ?? "none"`), []string{"ascending", "descending", "none"}[i]; got != want {
			t.Errorf("aria-sort is %s, want %s", got, want)
		}
	}
	b.click("[data-key=sort-Error]")
	if got := column("Error"); got != "broker refused refused timeout" {
		t.Errorf("by error class: %s", got)
	}
	b.sees(".selection", "1 dead letter chosen")
}

// A list of several pages shows the number of dead letters.
func TestList_Total(t *testing.T) {
	t.Parallel()
	w := start(t)
	for i := range 52 {
		w.writeDeadLetter(func(l *dlq.DeadLetter) { l.ErrorClass = []string{"a", "b"}[i/51] })
	}
	b := w.open(access.Viewer, "/dead-letters?status=open")
	b.sees(".pager", "1–50 of 52 dead letters, newest first")
	b.visit("/dead-letters?status=open&error_class=a")
	b.sees(".pager", "1–50 of 51 dead letters, newest first")
	b.click("[data-key=next]")
	b.sees(".pager", "51 of 51 dead letters, newest first, page 2")
	b.visit("/dead-letters?status=open&error_class=b")
	b.sees(".pager", "1 dead letter, newest first")
	b.visit("/dead-letters?status=open&text=bytes")
	b.sees(".pager", "1–50 of more than 50 dead letters, newest first") // the counts do not contain it
	b.click("[data-key=next]")
	b.sees(".pager", "51–52 of 52 dead letters, newest first, page 2")
	b.click("[data-key=back]")
	b.sees(".pager", "1–50 of more than 50 dead letters, newest first")
}

// The lists of orders, messages, jobs and changes contain how many there are, and sort the rows
// of a page.
func TestList_SortsItsPage(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shop()
	for _, actor := range []string{"bert", "ann", "carl"} {
		if _, err := w.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionReplay, Filter: dlq.Filter{ErrorClass: "none"}, Rate: 50}, dlq.Actor{Name: actor, Reason: "INC-311"}); err != nil {
			t.Fatal(err)
		}
		if err := w.session.Query("INSERT INTO admin_audit (day, id, actor, role, action, target, reason, state) VALUES (?, ?, ?, 'admin', 'reshard-relay', 'orders', 'more hosts', 'done')",
			time.Now().UTC().Truncate(24*time.Hour), gocql.TimeUUID(), actor).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	b := w.open(access.Viewer, "/")
	for _, list := range []struct{ path, pager, column string }{
		{"/orders?customer=17850", "13 orders, newest first", "Status"},
		{"/scheduled", "7 messages, next due first", "Topic"},
		{"/jobs", "3 jobs, newest first", "By"},
		{"/audit", "3 changes, newest first", "Who"},
	} {
		b.visit(list.path)
		b.sees(".pager", list.pager)
		b.click("[data-key=sort-" + list.column + "]")
		b.click("[data-key=sort-" + list.column + "]")
		got := eval[[]string](b, `[...document.querySelectorAll("tbody td[data-label=" + %s + "]")].map((c) => c.innerText)`, list.column)
		if want := slices.Sorted(slices.Values(got)); got[0] == got[len(got)-1] || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("%s, sorted twice by %s, has %q, want the reverse of %q", list.path, list.column, got, want)
		}
		if title := eval[string](b, `document.querySelector("[data-key=sort-" + %s + "]").title`, list.column); title != "Sort the rows of this page" {
			t.Errorf("the title of a column of %s is %q", list.path, title)
		}
	}
}

// Scheduled messages are filtered by the beginning of a time, and an action on all that match is, too.
func TestScheduled_SinceATime(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shop()
	b := w.open(access.Operator, "/scheduled?since="+time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
	b.sees(".pager", "1 message, next due first")
	b.click("[data-key=act-deliver-many-now]")
	b.sees("dialog .callout", "1 message.")
	b.sees("dialog .preview", "newsletter")
}

// A filter is saved under a name in the browser, chosen again, and deleted.
func TestViews_AreSaved(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.writeDeadLetter(nil)
	b := w.open(access.Viewer, "/dead-letters")
	b.sees("main", "1 dead letter, newest first")
	if b.count("[data-key=save-view], [data-key=f-view]") > 0 {
		t.Error("a list without a filter offers to save it")
	}
	b.visit("/dead-letters?status=failed&text=<b>x")
	b.click("[data-key=save-view]")
	b.fills("dialog [data-key=view-name]", "<i>night</i>")
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
	b.sees("[data-key=f-view]", "<i>night</i>")
	b.shoot("dead-letters-view")
	b.visit("/dead-letters?status=open")
	eval[bool](b, `(document.querySelector("[data-key=f-view]").value = "<i>night</i>", document.querySelector("[data-key=f-view]").dispatchEvent(new Event("change")), true)`)
	b.at("/dead-letters?status=failed&text=%3Cb%3Ex")
	b.click("[data-key=forget-view]")
	b.sees("[data-key=save-view]", "Save view")
	b.has("[data-key=f-view]", 0)
}

// Times are UTC, or in the browser's time zone if its user prefers that.
func TestTimes_Local(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.writeDeadLetter(nil)
	b := w.window()
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kathmandu"})
	b.visit("/dead-letters/" + id.String() + "#token=" + w.tokens[access.Viewer])
	failed := w.until(id, "suspended", is(dlq.Suspended)).FirstFailedAt
	b.sees("dd", failed.Format("2006-01-02 15:04:05"))
	b.types("?")
	b.click("dialog [data-key=local]")
	b.sees("dd", failed.In(time.FixedZone("", 5*3600+45*60)).Format("2006-01-02 15:04:05")+" GMT+5:45")
	b.types("?")
	b.click("dialog [data-key=local]")
	b.sees("dd", failed.Format("2006-01-02 15:04:05"))
}
