package admin

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// The audit trail states each change in one sentence: the action, how many dead letters the job
// has changed, which, and why.
func TestAudit_StatesAChangeInOneSentence(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i := range 15 {
		b.writeDeadLetter(t, testDeadLetter("a", int64(i+1)), time.Time{})
	}
	one := b.writeDeadLetter(t, testDeadLetter("b", 1), time.Time{})
	ask := func(path, body, reason string, status int) (j JobBody) {
		t.Helper()
		b.ask(t, access.Admin, "POST", path, body, httpapi.ReasonHeader, reason).into(t, status, &j)
		return j
	}

	set := b.job(t, nil, `{"action":"set","set":{"priority":5,"add_tags":["vip"]},"ids":["`+one.EventID.String()+`"]}`)
	ask("/v1/dead-letters/"+one.EventID.String()+"/suspend", "", "later", http.StatusOK)
	b.job(t, nil, `{"action":"discard","filter":{"error_class":"record_too_large","aggregate_id":"a"}}`)
	paused := ask("/v1/jobs", `{"action":"unblock","filter":{"status":["failed"],"since":"2026-01-02T03:04:05Z"}}`, "INC-9", http.StatusAccepted)
	ask("/v1/jobs/"+paused.ID+"/pause", "", "wait", http.StatusOK)
	b.ask(t, access.Admin, "POST", "/v1/jobs/"+set.ID.String()+"/pause", "", httpapi.ReasonHeader, "late").problemIn(t, http.StatusConflict)

	var got []string
	for _, e := range b.auditEntries(t, "") {
		got = append(got, e.Summary)
	}
	slices.Reverse(got)
	want := []string{
		"set, 1 dead letter, priority 5, add tag vip, reason a test",
		"suspend, 1 dead letter, reason later",
		"discard, 15 dead letters, record_too_large, aggregate a, reason a test",
		"unblock, dead letters, failed, since 2026-01-02T03:04:05Z, reason INC-9",
		"pause job, unblock, dead letters, failed, since 2026-01-02T03:04:05Z, reason wait",
		"refused: pause job, set, 1 dead letter, reason late",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the sentences are\n%q\nwant\n%q", got, want)
	}
	// A change of something else names it, and for a job that is gone it contains the request.
	for _, tt := range []struct {
		e    AuditEntry
		want string
	}{
		{AuditEntry{Action: "seek-subscription", Target: "mail", State: auditDone, Reason: "bug"}, "seek subscription mail, reason bug"},
		{AuditEntry{Action: "reject-lease", Target: "mail", State: auditDone, Detail: `{"lease":"OrderCreated:0:17:3"}`, Reason: "bug"}, "reject lease mail, lease OrderCreated:0:17:3, reason bug"},
		{AuditEntry{Action: "create-job", State: auditRefused, Detail: `{"action":"discard","filter":{"text":"gone"}}`}, `refused: discard, dead letters, text "gone"`},
		{AuditEntry{Action: "create-job", State: auditUnknown, Detail: `{`}, "unknown: create job"},
		{AuditEntry{Action: string(dlq.ActionReopen), State: auditIntended, Target: one.EventID.String()}, "intended: reopen, 1 dead letter"},
	} {
		if got := tt.e.summary(nil); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.e, got, tt.want)
		}
	}
}
