package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func (b *dlqFixture) id(s string) gocql.UUID {
	b.t.Helper()
	id, err := gocql.ParseUUID(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *dlqFixture) discard(id string) {
	b.t.Helper()
	if err := b.store.Discard(b.t.Context(), b.id(id), dlq.Actor{Name: "eve"}); err != nil {
		b.t.Fatal(err)
	}
}

func TestDLQ_PurgeAndRestore(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	dir := filepath.Join(t.TempDir(), "archive")
	done := b.writeDeadLetter(1, nil)
	b.discard(done)
	open := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID = "b" })
	suspended := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.AggregateID, l.Status = "c", dlq.Suspended })
	in := func(args ...string) []string { return append(args, "--archive-url", dir) }

	if _, errOut := b.run(cli.ExitFailed, "purge", "--all", "--yes", "--reason", "a test"); !strings.Contains(errOut, "there is no archive") || !strings.Contains(errOut, "--no-archive") {
		t.Errorf("purge without an archive said %q", errOut)
	}
	if _, errOut := b.run(cli.ExitUsage, in("purge", "--all", "--reason", "a test")...); !strings.Contains(errOut, "nothing was changed") {
		t.Errorf("purge without a terminal and --yes said %q", errOut)
	}
	if out, errOut := b.run(cli.ExitOK, in("purge", "--all", "--dry-run")...); out != "" || !strings.Contains(errOut, "purge 1 dead letter of 1 aggregate") {
		t.Errorf("purge --dry-run printed %q, %q", out, errOut)
	}
	if b.status(done) != dlq.Resolved {
		t.Fatal("a dry run or a refused purge changed the dead letter")
	}
	if out, _ := b.run(cli.ExitOK, in("purge", "--all", "--yes", "--actor", "ann", "--reason", "GDPR")...); !strings.Contains(out, "1 changed, 0 refused") {
		t.Errorf("purge printed %q", out)
	}
	for id, want := range map[string]dlq.Status{done: dlq.Archived, open: dlq.Pending, suspended: dlq.Suspended} {
		if got := b.status(id); got != want {
			t.Errorf("after the purge %s is %s, want %s", id, got, want)
		}
	}
	history, err := b.store.History(t.Context(), b.id(done))
	if err != nil || len(history) != 1 || history[0].By != "ann" || history[0].Why != "GDPR" {
		t.Errorf("history %+v, %v", history, err)
	}
	b.run(cli.ExitFailed, in("purge", open, "--yes", "--reason", "a test", "--force")...)
	b.run(cli.ExitFailed, in("purge", suspended, "--yes", "--reason", "a test")...)

	out, _ := b.run(cli.ExitOK, in("archive", "get", done)...)
	var rec struct {
		EventID string `json:"event_id"`
		Payload string `json:"payload"`
		History []dlq.Change
	}
	if err := json.Unmarshal([]byte(out), &rec); err != nil || rec.EventID != done || rec.Payload != `{"id":1}` || len(rec.History) != 2 {
		t.Errorf("archive get printed %s, %v", out, err)
	}
	out, _ = b.run(cli.ExitOK, in("archive", "list", "-o", "json")...)
	objects := decodeItems[admin.ArchiveObject](t, out)
	if len(objects) != 1 || objects[0].DeadLetters != 1 || objects[0].Expires == nil {
		t.Fatalf("archive list printed %s", out)
	}
	if out, _ := b.run(cli.ExitOK, in("archive", "list", "--since", "1h")...); !strings.Contains(out, objects[0].Object) {
		t.Errorf("archive list printed %s", out)
	}
	if out, _ := b.run(cli.ExitOK, in("archive", "list", "--until", "2026-01-01")...); strings.Contains(out, objects[0].Object) {
		t.Errorf("archive list --until printed %s", out)
	}
	if out, _ := b.run(cli.ExitOK, in("archive", "get", objects[0].Object)...); !strings.Contains(out, done) {
		t.Errorf("archive get of an object printed %s", out)
	}
	b.run(cli.ExitFailed, in("archive", "get", "2026/01/02/nosuch")...)
	b.run(cli.ExitFailed, in("archive", "get", open)...)
	b.run(cli.ExitUsage, "archive", "list")
	if _, errOut := b.run(cli.ExitOK, in("archive", "restore", "--object", objects[0].Object, "--dry-run")...); !strings.Contains(errOut, "restore 1 dead letter") {
		t.Errorf("restore --dry-run said %q", errOut)
	}
	b.run(cli.ExitOK, in("archive", "restore", done, "--yes", "--reason", "a test")...)
	if l, err := b.store.Read(t.Context(), b.id(done)); err != nil || l.Status != dlq.Resolved || string(l.Payload) != `{"id":1}` {
		t.Errorf("restored %+v, %v", l, err)
	}

	// It is a job like others, which another process with the archive may run.
	out, _ = b.run(cli.ExitWaits, in("purge", done, "--yes", "--reason", "a test", "--detach", "-o", "json")...)
	var c admin.JobBody
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.Action != dlq.ActionPurge || b.status(done) != dlq.Resolved {
		t.Fatalf("purge --detach printed %s, %v", out, err)
	}
	b.run(cli.ExitOK, "jobs", "pause", c.ID, "--reason", "a test")
	b.run(cli.ExitFailed, "jobs", "resume", c.ID, "--yes", "--reason", "a test")
	if out, _ := b.run(cli.ExitOK, in("jobs", "resume", c.ID, "--yes", "--reason", "a test")...); !strings.Contains(out, "1 of 1, 1 changed") || b.status(done) != dlq.Archived {
		t.Errorf("jobs resume of a purge printed %q", out)
	}
	b.run(cli.ExitOK, in("archive", "restore", "--aggregate-id", "nobody", "--yes", "--reason", "a test")...)
	b.run(cli.ExitOK, in("archive", "restore", done, "--yes", "--reason", "a test")...)

	// With --no-archive dead letters are purged for good.
	b.run(cli.ExitOK, "purge", suspended, done, "--force", "--no-archive", "--yes", "--reason", "a test")
	if _, errOut := b.run(cli.ExitFailed, in("archive", "restore", suspended, "--yes", "--reason", "a test")...); !strings.Contains(errOut, "is in no archive") {
		t.Errorf("restore of what is lost said %q", errOut)
	}
}

func TestDLQ_ArchiveRun(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	old := time.Now().Add(-48 * time.Hour)
	id := b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.FirstFailedAt, l.LastFailedAt = old, old })
	clock, err := dlq.Open(b.session, "outbox", dlq.WithClock(world.Clock(func() time.Time { return old })))
	if err != nil {
		t.Fatal(err)
	}
	if err := clock.Discard(t.Context(), b.id(id), dlq.Actor{Name: "eve"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "archive")
	sweep := func(want int, args ...string) (out, errOut string) {
		t.Helper()
		return b.run(want, append([]string{"archive", "run", "--yes", "--reason", "a test"}, args...)...)
	}
	if out, _ := sweep(cli.ExitOK, "--archive-url", dir); !strings.HasPrefix(out, "archive: 0 changed") {
		t.Errorf("with 30 days: %q", out)
	}
	if _, errOut := sweep(cli.ExitOK, "--archive-url", dir, "--retention-resolved", "24h", "--dry-run"); !strings.Contains(errOut, "1  resolved") || b.status(id) != dlq.Resolved {
		t.Errorf("a dry run: %q, and the dead letter is %s", errOut, b.status(id))
	}
	if out, _ := sweep(cli.ExitOK, "--archive-url", dir, "--retention-resolved", "24h"); !strings.HasPrefix(out, "archive: 1 changed") || b.status(id) != dlq.Archived {
		t.Errorf("with a day: %q, and the dead letter is %s", out, b.status(id))
	}
	sweep(cli.ExitUsage, "--archive-url", dir, "--retention-resolved", "1m")
	if _, errOut := sweep(cli.ExitFailed); !strings.Contains(errOut, "--archive-url") {
		t.Errorf("without an archive: %q", errOut)
	}
	b.run(cli.ExitUsage, "archive", "run", "--archive-url", dir)
	if ttl, err := app.RowTTL(t.Context(), b.session, "outbox.outbox_messages"); err != nil || ttl != 7*24*time.Hour {
		t.Errorf("rowTTL() = %s, %v, want a week", ttl, err)
	}
}

func TestVerify_ArchivedDeadLettersAreNotMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		l      dlq.DeadLetter
		detail string
		ok     bool
	}{
		"in the archive": {dlq.DeadLetter{Archive: "2026/x", PurgedAt: time.Now()}, "outbox dlq archive get", true},
		"purged":         {dlq.DeadLetter{PurgedAt: time.Now()}, "purged at", true},
		"discarded":      {dlq.DeadLetter{PurgedAt: time.Now(), Outcome: dlq.Outcome{Kind: dlq.OutcomeDiscarded}}, "discarded", true},
		"redirected":     {dlq.DeadLetter{Outcome: dlq.Outcome{Kind: dlq.OutcomeRedirected, Topic: "Elsewhere"}, ResolvedAt: time.Now().Add(-time.Hour)}, "redirected: Elsewhere", true},
		"replayed":       {dlq.DeadLetter{PurgedAt: time.Now(), Outcome: dlq.Outcome{Kind: dlq.OutcomeReplayed}, ResolvedAt: time.Now().Add(-time.Hour)}, "", false},
	} {
		tt.l.Status = dlq.Archived
		got, ok := app.ClosedDeadLetter(&tt.l, time.Now().Add(-time.Minute))
		if ok != tt.ok || ok && (got.State != verify.DeadLetterClosed || !strings.Contains(got.Detail, tt.detail)) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}
