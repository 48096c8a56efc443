//go:build browser

package browser

import (
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// Resolved dead letters are purged from the table, are in the archive, and can
// be restored; each step has a preview and requires a reason.
func TestArchive_PurgeAndRestore(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.background("jobs", jobs.NewRunner(w.jobs(), jobs.RunnerConfig{Archive: w.keeper}).Run)
	ids := []gocql.UUID{w.writeDeadLetter(nil), w.writeDeadLetter(nil)}
	for _, id := range ids {
		if err := w.deadLetters.Discard(t.Context(), id, dlq.Actor{Name: "jo"}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.open(access.Admin, "/archive")
	b.sees("main", "The archive is empty")
	b.click("[data-key=settled]")
	b.sees("main", "2 dead letters, newest first")
	for _, id := range ids {
		b.click(`[data-key="pick-` + id.String() + `"]`)
	}
	b.click(".selection [data-key=act-purge]")
	b.sees("dialog", "2 dead letters of 2 aggregates")
	b.sees("dialog", "Type 2 to confirm")
	b.shoot("purge-preview")
	b.fills("dialog [data-key=reason]", "GDPR-7")
	b.fills("dialog [data-key=typed]", "2")
	b.click("dialog [data-key=yes]")
	b.gone("dialog")
	b.sees("main h1", "Purge: 2 chosen")
	b.sees(".title .badge", "done")
	for _, id := range ids {
		if l := w.until(id, "archived", is(dlq.Archived)); l.Archive == "" || l.Payload != nil {
			t.Errorf("dead letter %s is %+v", id, l)
		}
	}
	b.visit("/archive")
	b.sees("main", ".jsonl.zst")
	b.shoot("archive")
	b.click("[data-key=restore-0]")
	b.sees("dialog", "2 dead letters of 2 aggregates")
	b.confirm("needed again")
	b.sees("main h1", "Restore: 2 chosen")
	b.sees(".title .badge", "done")
	for _, id := range ids {
		w.until(id, "resolved", is(dlq.Resolved))
	}

	// A viewer sees the archive without actions.
	b = w.open(access.Operator, "/archive")
	b.sees("main", ".jsonl.zst")
	if n := b.count("[data-key=restore-0], [data-key=sweep]"); n != 0 {
		t.Errorf("an operator is offered %d ways to change the archive", n)
	}
}
