package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// auditBody is the response of the audit trail.
type auditBody struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next"`
}

func (b *fixture) auditEntries(t *testing.T, query string) []AuditEntry {
	t.Helper()
	var a auditBody
	b.ask(t, access.Viewer, "GET", "/v1/audit?"+query, "").into(t, http.StatusOK, &a)
	return a.Entries
}

func TestAct_ChangesTheDeadLetterAndIsAudited(t *testing.T) {
	t.Parallel()
	for action, want := range map[dlq.Action]dlq.Status{
		dlq.ActionReplay: dlq.Pending, dlq.ActionUnblock: dlq.Suspended, dlq.ActionSuspend: dlq.Suspended, dlq.ActionResolve: dlq.Resolved, dlq.ActionDiscard: dlq.Resolved,
	} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *Config) { c.Proxies = behind(t) })
			l := testDeadLetter("a", 1)
			if action == dlq.ActionSuspend {
				l.Status, l.Strategy = dlq.Pending, dlq.StrategyImmediate
			}
			b.writeDeadLetter(t, l, time.Time{})
			path := "/v1/dead-letters/" + l.EventID.String() + "/" + string(action)

			var dry struct {
				DryRun     bool          `json:"dry_run"`
				Preview    *jobs.Preview `json:"preview"`
				DeadLetter Summary       `json:"dead_letter"`
			}
			b.ask(t, access.Admin, "POST", path, `{"dry_run":true}`, httpapi.ReasonHeader, "").into(t, http.StatusOK, &dry)
			if !dry.DryRun || dry.Preview == nil || dry.Preview.DeadLetters != 1 || dry.DeadLetter.Version != 1 {
				t.Errorf("dry run: %+v", dry)
			}
			if lines := b.auditEntries(t, ""); len(lines) != 0 {
				t.Errorf("a dry run is in the audit: %+v", lines)
			}

			var got struct {
				DeadLetter Summary `json:"dead_letter"`
			}
			a := b.ask(t, access.Admin, "POST", path, "", httpapi.ReasonHeader, "mended", "If-Match", `"1"`, access.RequestIDHeader, "r-1", "X-Forwarded-For", "203.0.113.5").into(t, http.StatusOK, &got)
			if got.DeadLetter.Status != want || got.DeadLetter.Version != 2 || a.header.Get("ETag") != `"2"` || got.DeadLetter.Unblocked != (action == dlq.ActionUnblock) {
				t.Errorf("after %s: %s", action, a.body)
			}
			h, err := b.store.History(t.Context(), l.EventID)
			if err != nil || len(h) != 2 || h[1].By != "a-admin" || h[1].Why != "mended" {
				t.Errorf("history %+v, %v", h, err)
			}
			lines := b.auditEntries(t, "")
			if len(lines) != 1 {
				t.Fatalf("audit: %+v", lines)
			}
			if x := lines[0]; x.Actor != "a-admin" || x.Role != access.Admin || x.Action != string(action) || x.Target != l.EventID.String() || x.Reason != "mended" ||
				x.RequestID != "r-1" || x.State != auditDone || x.Finished == nil || x.Remote != "203.0.113.5" || time.Since(x.At) > time.Minute {
				t.Errorf("audit: %+v", x)
			}
		})
	}
}

// behind is the trusted proxy of the test: this machine.
func behind(t *testing.T) access.Proxies {
	t.Helper()
	p, err := access.NewProxies([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAct_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	blocked := testDeadLetter("a", 2)
	blocked.Status = dlq.Blocked
	b.writeDeadLetter(t, blocked, time.Time{})
	claimed := testDeadLetter("b", 1)
	claimed.Status = dlq.Pending
	b.writeDeadLetter(t, claimed, time.Time{})
	if _, err := b.store.Claim(t.Context(), claimed.EventID, "relay-1", time.Minute); err != nil {
		t.Fatal(err)
	}
	path := func(l *dlq.DeadLetter, action string) string {
		return "/v1/dead-letters/" + l.EventID.String() + "/" + action
	}

	p := b.ask(t, access.Admin, "POST", path(blocked, "replay"), `{}`).problemIn(t, http.StatusConflict)
	if p.DeadLetterStatus != dlq.Blocked || !strings.Contains(p.Hint, "act on the first") || p.Type != httpapi.TypeRefused || p.RequestID == "" {
		t.Errorf("a blocked dead letter: %+v", p)
	}
	p = b.ask(t, access.Admin, "POST", path(claimed, "discard"), `{}`).problemIn(t, http.StatusConflict)
	if p.DeadLetterStatus != dlq.Processing || p.ClaimedUntil == nil || p.Hint == "" {
		t.Errorf("a claimed dead letter: %+v", p)
	}
	a := b.ask(t, access.Admin, "POST", path(l, "discard"), `{}`, "If-Match", `"7"`)
	if a.problemIn(t, http.StatusPreconditionFailed); a.header.Get("ETag") != `"1"` {
		t.Errorf("412 with ETag %q, want the dead letter's", a.header.Get("ETag"))
	}
	b.ask(t, access.Admin, "POST", path(l, "discard"), `{"dry_run":true}`, "If-Match", `"7"`).problemIn(t, http.StatusPreconditionFailed)
	b.ask(t, access.Admin, "POST", path(testDeadLetter("x", 1), "discard"), `{}`).problemIn(t, http.StatusNotFound)
	for _, other := range []string{`W/"1"`, `"x"`, `""`, `"0"`, `"2", "3"`} {
		b.ask(t, access.Admin, "POST", path(l, "discard"), `{}`, "If-Match", other).problemIn(t, http.StatusPreconditionFailed)
	}
	b.ask(t, access.Admin, "POST", path(l, "discard"), `{"dry_run":true}`, "If-Match", `"7", "1"`).into(t, http.StatusOK, nil)
	for _, odd := range []string{"7", `"1",`, `*, "1"`} {
		if p := b.ask(t, access.Admin, "POST", path(l, "discard"), `{}`, "If-Match", odd).problemIn(t, http.StatusUnprocessableEntity); p.Errors[0].Location != "header.If-Match" {
			t.Errorf("If-Match %s: %+v", odd, p)
		}
	}
	if l := b.mustRead(t, l); l.Status != dlq.Suspended || l.Version != 1 {
		t.Errorf("a refused change changed the dead letter: %+v", l)
	}
	states := make(map[string]int)
	for _, x := range b.auditEntries(t, "") {
		states[x.State]++
		if x.Outcome == "" {
			t.Errorf("the audit does not say why: %+v", x)
		}
	}
	if states[auditRefused] != 4 || len(states) != 1 {
		t.Errorf("audit by state: %v, want 4 refused", states)
	}
}

func (b *fixture) mustRead(t *testing.T, l *dlq.DeadLetter) dlq.DeadLetter {
	t.Helper()
	got, err := b.store.Read(t.Context(), l.EventID)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Of many clients with the same version, exactly one changes the dead letter.
func TestAct_OneOfManyAtTheSameVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := make(map[int]int)
	for i := range 8 {
		wg.Go(func() {
			action := []string{"replay", "unblock"}[i%2]
			a := b.ask(t, access.Operator, "POST", "/v1/dead-letters/"+l.EventID.String()+"/"+action, "{}", "If-Match", `"1"`)
			mu.Lock()
			defer mu.Unlock()
			codes[a.code]++
		})
	}
	wg.Wait()
	if codes[http.StatusOK] != 1 || codes[http.StatusPreconditionFailed] != 7 {
		t.Errorf("answers by status: %v, want one 200 and seven 412", codes)
	}
	if l := b.mustRead(t, l); l.Version != 2 {
		t.Errorf("version %d, want 2", l.Version)
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	for i := range 3 {
		f := testDeadLetter("a", int64(i+2))
		f.Status, f.ErrorClass = dlq.Blocked, "behind"
		b.writeDeadLetter(t, f, time.Time{})
	}
	b.writeDeadLetter(t, testDeadLetter("b", 1), time.Time{})
	var p PreviewBody
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{},"rate":4}`).into(t, http.StatusOK, &p)
	if p.DeadLetters != 2 || p.Aggregates != 2 || p.Followers != 3 || p.Refused[dlq.Blocked] != 3 || p.ByClass["record_too_large"] != 2 || p.LookedAt != 5 || p.Truncated || p.Estimated != 0.5 {
		t.Errorf("preview of a filter: %+v", p)
	}
	p = PreviewBody{}
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", fmt.Sprintf(`{"action":"discard","ids":["%[1]s","%[1]s","01a2005c-395d-72e3-8401-994110828553"]}`, first.EventID)).into(t, http.StatusOK, &p)
	if p.DeadLetters != 1 || p.Missing != 1 || p.Followers != 3 || p.LookedAt != 1 || len(p.Reasons) != 1 || p.Reasons[0] != "event 01a2005c-395d-72e3-8401-994110828553 has no dead letter" {
		t.Errorf("preview of ids: %+v", p)
	}
	blocked := testDeadLetter("c", 1)
	blocked.Status = dlq.Blocked
	b.writeDeadLetter(t, blocked, time.Time{})
	p = PreviewBody{}
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", fmt.Sprintf(`{"action":"replay","ids":["%s"]}`, blocked.EventID)).into(t, http.StatusOK, &p)
	if p.DeadLetters != 0 || p.Refused[dlq.Blocked] != 1 || len(p.Reasons) != 1 || !strings.Contains(p.Reasons[0], blocked.EventID.String()) {
		t.Errorf("preview of a refused id: %+v", p)
	}
	p = PreviewBody{}
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"replay","filter":{"status":["suspended"]},"limit":1}`).into(t, http.StatusOK, &p)
	if p.DeadLetters != 1 || p.Truncated {
		t.Errorf("preview with a limit: %+v", p)
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	var dry struct {
		DryRun  bool         `json:"dry_run"`
		Preview *PreviewBody `json:"preview"`
		ID      string       `json:"id"`
	}
	b.ask(t, access.Operator, "POST", "/v1/jobs", `{"action":"replay","filter":{"error_class":"record_too_large"},"dry_run":true}`).into(t, http.StatusOK, &dry)
	if !dry.DryRun || dry.Preview == nil || dry.Preview.DeadLetters != 1 || dry.ID != "" {
		t.Errorf("dry run: %+v", dry)
	}
	if jobs, err := b.jobs().ListOpen(t.Context()); err != nil || len(jobs) != 0 {
		t.Errorf("a dry run made a job: %v, %v", jobs, err)
	}
	var made JobBody
	var ids []string
	for i := range 3 {
		a := b.ask(t, access.Operator, "POST", "/v1/jobs", fmt.Sprintf(`{"action":"replay","ids":["%s"],"rate":5,"canary":true}`, l.EventID), httpapi.ReasonHeader, fmt.Sprint("job ", i)).into(t, http.StatusAccepted, &made)
		if a.header.Get("Location") != "/v1/jobs/"+made.ID || made.State != jobs.Queued || made.Actor != "a-operator" || made.Rate != 5 || !made.Canary || made.IDs != 1 {
			t.Errorf("made: %s", a.body)
		}
		ids = append(ids, made.ID)
	}
	for follow, want := range map[string]time.Duration{"45s": 45 * time.Second, "0s": -1} {
		var short JobBody
		b.ask(t, access.Operator, "POST", "/v1/jobs", fmt.Sprintf(`{"action":"replay","ids":["%s"],"follow":%q}`, l.EventID, follow)).into(t, http.StatusAccepted, &short)
		id, _ := gocql.ParseUUID(short.ID)
		if j, err := b.jobs().Read(t.Context(), id); err != nil || j.Follow != want {
			t.Errorf("a job that follows for %s: %+v, %v", follow, j, err)
		}
		ids = append(ids, short.ID)
	}
	for _, bad := range []string{`"replay","follow":"soon"`, `"replay","follow":"-1s"`, `"discard","follow":"1s"`, `"replay","canary":true,"follow":"0s"`} {
		b.ask(t, access.Admin, "POST", "/v1/jobs", fmt.Sprintf(`{"ids":["%s"],"action":%s}`, l.EventID, bad)).problemIn(t, http.StatusUnprocessableEntity)
	}
	var page struct {
		Jobs []JobBody `json:"jobs"`
		Next string    `json:"next"`
	}
	var listed []string
	for cursor := ""; ; cursor = page.Next {
		page.Next = ""
		b.ask(t, access.Viewer, "GET", "/v1/jobs?limit=2&cursor="+cursor, "").into(t, http.StatusOK, &page)
		for _, j := range page.Jobs {
			listed = append(listed, j.ID)
		}
		if page.Next == "" {
			break
		}
	}
	slices.Reverse(listed)
	if !slices.Equal(listed, ids) {
		t.Errorf("listed %v of %v", listed, ids)
	}
	job := "/v1/jobs/" + ids[0]
	for _, step := range []struct {
		what  string
		role  access.Role
		code  int
		state jobs.State
	}{
		{"pause", access.Operator, 200, jobs.Paused},
		{"resume", access.Operator, 200, jobs.Queued},
		{"cancel", access.Operator, 403, jobs.Queued},
		{"cancel", access.Admin, 200, jobs.Cancelled},
		{"pause", access.Operator, 409, jobs.Cancelled},
	} {
		a := b.ask(t, step.role, "POST", job+"/"+step.what, "")
		var j JobBody
		b.ask(t, access.Viewer, "GET", job, "").into(t, http.StatusOK, &j)
		if a.code != step.code || j.State != step.state {
			t.Errorf("%s by %s = %d and %s, want %d and %s", step.what, step.role, a.code, j.State, step.code, step.state)
		}
	}
	b.ask(t, access.Viewer, "GET", "/v1/jobs/01a2005c-395d-11e3-8401-994110828553", "").problemIn(t, http.StatusNotFound)
	got := make(map[string]int)
	for _, x := range b.auditEntries(t, "") {
		got[x.Action+" "+x.State]++
		if x.Target == "" {
			t.Errorf("no job in the audit: %+v", x)
		}
	}
	if fmt.Sprint(got) != "map[cancel-job done:1 create-job done:5 pause-job done:1 pause-job refused:1 resume-job done:1]" {
		t.Errorf("audit: %v", got)
	}
}

// If a change was made and its result cannot be read, the response does not suggest a
// retry.
func TestChange_MadeAndNotReadBack(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	job, err := b.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionSuspend}, dlq.Actor{Name: "mara"})
	if err != nil {
		t.Fatal(err)
	}
	b.fault("dead_letter_holds", engine.OpRead, 0)
	b.fault("dead_letter_jobs", engine.OpRead, 1)
	for _, path := range []string{"dead-letters/" + l.EventID.String() + "/replay", "jobs/" + job.ID.String() + "/pause"} {
		if p := b.ask(t, access.Operator, "POST", "/v1/"+path, "").problemIn(t, http.StatusServiceUnavailable); !p.OutcomeUnknown {
			t.Errorf("%s: %+v, want it to say that the change may have been made", path, p)
		}
	}
	for _, x := range b.auditEntries(t, "") {
		if x.State != auditDone {
			t.Errorf("audit: %+v, want it done", x)
		}
	}
}
