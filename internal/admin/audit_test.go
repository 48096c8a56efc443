package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// A change that cannot be recorded is not made.
func TestAudit_NothingIsDoneThatItCannotHave(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	b.fault("admin_audit", engine.OpWrite, 0)
	a := b.ask(t, access.Admin, "POST", "/v1/dead-letters/"+l.EventID.String()+"/discard", `{}`)
	if p := a.problemIn(t, http.StatusServiceUnavailable); p.OutcomeUnknown || a.header.Get("Retry-After") == "" {
		t.Errorf("problem %+v, header %v", p, a.header)
	}
	if l := b.mustRead(t, l); l.Version != 1 {
		t.Errorf("the dead letter was changed: %+v", l)
	}
}

// A process that crashes between the change and its result leaves an entry with the state
// intended; so does one whose last write fails.
func TestAudit_ACrashLeavesAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	b.fault("admin_audit", engine.OpWrite, 1)
	b.ask(t, access.Admin, "POST", "/v1/dead-letters/"+l.EventID.String()+"/discard", "", httpapi.ReasonHeader, "gone").into(t, http.StatusOK, nil)
	if l := b.mustRead(t, l); l.Status != dlq.Resolved {
		t.Errorf("the dead letter is %s", l.Status)
	}
	lines := b.auditEntries(t, "")
	if len(lines) != 1 || lines[0].State != auditIntended || lines[0].Finished != nil || lines[0].Target != l.EventID.String() || lines[0].Reason != "gone" {
		t.Errorf("audit: %+v", lines)
	}
	if n := testutil.ToFloat64(b.metrics.unaudited); n != 1 {
		t.Errorf("%v outcomes counted as missing, want 1", n)
	}
	if !strings.Contains(b.log.String(), "failed to record result of audited change") {
		t.Error("the log does not say so")
	}
}

// The partial result of a failed change is recorded with its error.
func TestAudit_RecordsWhatWasDoneBeforeAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ctx := access.With(t.Context(), access.Principal{Name: "ann", Role: access.Admin})
	err := b.audit.changeWithResult(ctx, entry{Action: "cancel-messages", Reason: "a test"}, func(context.Context, dlq.Actor) (string, string, error) {
		return "", `{"changed":3}`, context.Canceled
	})
	if l := b.auditEntries(t, "")[0]; !errors.Is(err, context.Canceled) || l.State != auditUnknown || l.Outcome != `context canceled; {"changed":3}` {
		t.Errorf("%v, audit %+v", err, l)
	}
}

// A change with an undetermined result is recorded as unknown.
func TestAudit_UnknownOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		brief, err := dlq.Open(c.Session, c.Keyspace, dlq.WithTimeouts(time.Second, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		c.DeadLetters = brief
	})
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	b.fault("dead_letter_queue", engine.OpCAS, 0)
	p := b.ask(t, access.Admin, "POST", "/v1/dead-letters/"+l.EventID.String()+"/discard", `{}`).problemIn(t, http.StatusServiceUnavailable)
	if !p.OutcomeUnknown {
		t.Errorf("the answer does not say that the outcome is unknown: %+v", p)
	}
	if lines := b.auditEntries(t, ""); len(lines) != 1 || lines[0].State != auditUnknown || lines[0].Outcome == "" {
		t.Errorf("audit: %+v", lines)
	}
}

func TestAudit_CursorsCrossDays(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now().UTC().Truncate(time.Millisecond)
	var want []string
	for i := range 30 { // over six days, some in the same millisecond
		id := gocql.UUIDFromTime(now.Add(-time.Duration(i/2) * 9 * time.Hour))
		actor := []string{"ann", "bob", "cid"}[i%3]
		action := []string{"replay", "replay", "deliver-messages-now", "replay", "cancel-messages"}[i%5]
		err := b.audit.query(t.Context(), b.audit.stmt.intend, dayPartition(id.Time()), id, actor, "admin", action, fmt.Sprint("target ", i), "", "", "r", "", id.Time().UnixMicro()).Exec()
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, id.String())
	}
	walk := func(query url.Values, limit int) (ids []string) {
		query.Set("limit", fmt.Sprint(limit))
		for range 100 {
			var a auditBody
			b.ask(t, access.Viewer, "GET", "/v1/audit?"+query.Encode(), "").into(t, http.StatusOK, &a)
			for _, l := range a.Entries {
				ids = append(ids, l.ID)
			}
			if a.Next == "" {
				return ids
			}
			query.Set("cursor", a.Next)
		}
		t.Fatal("no end of pages")
		return nil
	}
	all := walk(url.Values{}, 500)
	seen := make(map[string]bool)
	for i, id := range all {
		u, err := gocql.ParseUUID(id)
		if err != nil || seen[id] {
			t.Fatalf("line %d, %s: twice, or no id", i, id)
		}
		if i > 0 {
			if before, _ := gocql.ParseUUID(all[i-1]); before.Time().Before(u.Time()) {
				t.Errorf("line %d is newer than the one before", i)
			}
		}
		seen[id] = true
	}
	for _, id := range want {
		if !seen[id] {
			t.Errorf("%s is missing", id)
		}
	}
	for _, limit := range []int{1, 2, 7, 29, 30} {
		if got := walk(url.Values{}, limit); fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("by %d: %d lines, others or in another order", limit, len(got))
		}
	}
	var first auditBody
	b.ask(t, access.Viewer, "GET", "/v1/audit?limit=1&actor=bob", "").into(t, http.StatusOK, &first)
	for _, other := range []string{"", "&actor=alice", "&actor=bob&action=discard"} {
		if p := b.ask(t, access.Viewer, "GET", "/v1/audit?limit=1&cursor="+first.Next+other, "").problemIn(t, http.StatusUnprocessableEntity); p.Errors[0].Location != "query.cursor" {
			t.Errorf("the cursor of bob's entries with %q: %+v", other, p)
		}
	}
	if got := walk(url.Values{"actor": {"bob"}}, 3); len(got) != 10 {
		t.Errorf("of one actor %d lines, want 10", len(got))
	}
	if got := walk(url.Values{"action": {"deliver-messages-now,cancel-messages"}}, 3); len(got) != 12 {
		t.Errorf("of two actions %d lines, want 12", len(got))
	}
	if got := walk(url.Values{"action": {"cancel-messages"}, "actor": {"cid"}}, 3); len(got) != 2 {
		t.Errorf("of an actor's action %d lines, want 2", len(got))
	}
	if got := walk(url.Values{"action": {"cancel-message"}}, 3); len(got) != 0 {
		t.Errorf("of an action that was not asked for %d lines", len(got))
	}
	if got := walk(url.Values{"since": {now.Add(-46 * time.Hour).Format(time.RFC3339Nano)}, "until": {now.Add(-8 * time.Hour).Format(time.RFC3339Nano)}}, 3); len(got) != 10 {
		t.Errorf("of a span %d lines, want 10", len(got))
	}
}

// Every change needs a reason. Without one nothing is changed, and nothing is in the audit trail.
func TestAudit_AChangeNeedsAReason(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := testDeadLetter("a", 1)
	b.writeDeadLetter(t, l, time.Time{})
	deadLetter := "/v1/dead-letters/" + l.EventID.String()
	for path, body := range map[string]string{
		deadLetter + "/discard": "",
		deadLetter + "/suspend": `{"dry_run":false}`,
		deadLetter + "/set":     `{"priority":1}`,
		"/v1/jobs":              `{"action":"discard","filter":{}}`,
	} {
		for _, reason := range []string{"", "%20", "%zz", "gr\u00fc\u00dfe"} {
			p := b.ask(t, access.Admin, "POST", path, body, httpapi.ReasonHeader, reason).problemIn(t, http.StatusUnprocessableEntity)
			if len(p.Errors) != 1 || p.Errors[0].Location != "header.Audit-Reason" {
				t.Errorf("POST %s %s for %q: %+v, want an error of the header", path, body, reason, p)
			}
		}
	}
	if lines := b.auditEntries(t, ""); len(lines) != 0 {
		t.Errorf("the audit trail has %+v", lines)
	}
}
