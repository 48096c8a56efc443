package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// setupArchive is setup with an archive in a folder, and a runner for the jobs.
func setupArchive(t *testing.T) (*fixture, *archive.Sweeper) {
	t.Helper()
	a, err := archive.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	var keeper *archive.Sweeper
	b := setup(t, func(c *Config) {
		s, err := archive.NewSweeper(archive.Config{Store: c.DeadLetters, Archive: a, Owner: "test", Resolved: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		keeper = s
		c.Archive = keeper
	})
	return b, keeper
}

// job creates a job over HTTP and runs it.
func (b *fixture) job(t *testing.T, keeper *archive.Sweeper, body string) *jobs.Job {
	t.Helper()
	var made JobBody
	b.ask(t, access.Admin, "POST", "/v1/jobs", body).into(t, http.StatusAccepted, &made)
	id, err := gocql.ParseUUID(made.ID)
	if err != nil {
		t.Fatal(err)
	}
	j, err := jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Poll: 5 * time.Millisecond, Archive: keeper}).RunJob(t.Context(), id)
	if err != nil || j.State != jobs.Done {
		t.Fatalf("the job is %+v, %v", j, err)
	}
	return j
}

func (b *fixture) writeSettled(t *testing.T, aggregate string, at time.Time) *dlq.DeadLetter {
	t.Helper()
	l := b.writeDeadLetter(t, testDeadLetter(aggregate, 1), at)
	s := b.store
	if !at.IsZero() {
		var err error
		if s, err = dlq.Open(b.Session, "outbox", dlq.WithClock(world.Clock(func() time.Time { return at }))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Discard(t.Context(), l.EventID, dlq.Actor{Name: "eve"}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestArchives_PurgeListAndRestore(t *testing.T) {
	t.Parallel()
	b, keeper := setupArchive(t)
	done := b.writeSettled(t, "a", time.Time{})
	b.writeSettled(t, "other", time.Time{})
	suspended := b.writeDeadLetter(t, testDeadLetter("m", 1), time.Time{})
	archives := func() (out struct {
		Configured bool            `json:"configured"`
		Objects    []ArchiveObject `json:"objects"`
		Next       string          `json:"next"`
	},
	) {
		b.ask(t, access.Viewer, "GET", "/v1/archives", "").into(t, http.StatusOK, &out)
		return out
	}
	if a := archives(); !a.Configured || len(a.Objects) != 0 {
		t.Errorf("archives before: %+v", a)
	}

	// The preview equals the result of the job; a dry run returns it and creates no job.
	body := `"action":"purge","filter":{"aggregate_id":"a"}`
	var p PreviewBody
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", "{"+body+"}").into(t, http.StatusOK, &p)
	if p.DeadLetters != 1 || p.ByStatus[dlq.Resolved] != 1 || p.Estimated <= 0 || p.EstimatedBy != "default rate" {
		t.Errorf("preview: %+v", p)
	}
	var dry dryJobBody
	b.ask(t, access.Admin, "POST", "/v1/jobs", "{"+body+`,"dry_run":true}`).into(t, http.StatusOK, &dry)
	if dry.Preview.DeadLetters != 1 || len(b.auditEntries(t, "")) != 0 || b.mustRead(t, done).Status != dlq.Resolved {
		t.Errorf("dry run: %+v", dry)
	}
	j := b.job(t, keeper, "{"+body+"}")
	if l := b.mustRead(t, done); j.Progress.Changed != 1 || l.Status != dlq.Archived || l.Payload != nil || l.Archive == "" {
		t.Fatalf("after the purge: %+v, %+v", j.Progress, l)
	}
	lines := b.auditEntries(t, "")
	if len(lines) != 1 || lines[0].Action != "create-job" || lines[0].Reason != "a test" || !strings.Contains(lines[0].Detail, `"action":"purge"`) || lines[0].Target != j.ID.String() {
		t.Errorf("audit: %+v", lines)
	}
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", "{"+body+"}").into(t, http.StatusOK, &p)
	if p.DeadLetters != 0 || len(p.Refused) != 0 {
		t.Errorf("what was purged is previewed again: %+v", p)
	}

	// Manual dead letters need force.
	ids := `"ids":["` + suspended.EventID.String() + `"]`
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"purge",`+ids+`}`).into(t, http.StatusOK, &p)
	if p.DeadLetters != 0 || p.Refused[dlq.Suspended] != 1 {
		t.Errorf("preview of a suspended dead letter: %+v", p)
	}
	if j := b.job(t, keeper, `{"action":"purge","force":true,`+ids+`}`); j.Progress.Changed != 1 {
		t.Errorf("by force: %+v", j.Progress)
	}

	a := archives()
	if len(a.Objects) != 2 || a.Objects[0].DeadLetters != 1 || a.Objects[0].By != "a-admin" || a.Objects[0].Expires == nil {
		t.Fatalf("archives: %+v", a)
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		var page struct {
			Objects []ArchiveObject `json:"objects"`
			Next    string          `json:"next"`
		}
		b.ask(t, access.Viewer, "GET", "/v1/archives?limit=1&cursor="+cursor, "").into(t, http.StatusOK, &page)
		for _, o := range page.Objects {
			seen[o.Object] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != 2 {
		t.Errorf("by pages: %v", seen)
	}

	object, err := json.Marshal(b.mustRead(t, done).Archive)
	if err != nil {
		t.Fatal(err)
	}
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"restore","object":`+string(object)+`}`).into(t, http.StatusOK, &p)
	if p.DeadLetters != 1 || p.ByStatus[dlq.Archived] != 1 {
		t.Errorf("preview of a restore: %+v", p)
	}
	if j := b.job(t, keeper, `{"action":"restore","object":`+string(object)+`}`); j.Progress.Changed != 1 {
		t.Errorf("restore: %+v", j.Progress)
	}
	if l := b.mustRead(t, done); l.Status != dlq.Resolved || string(l.Payload) != string(done.Payload) {
		t.Errorf("restored: %+v", l)
	}
}

func TestArchives_SweepNow(t *testing.T) {
	t.Parallel()
	b, keeper := setupArchive(t)
	old := b.writeSettled(t, "old", time.Now().Add(-2*time.Hour))
	young := b.writeSettled(t, "young", time.Time{})
	var p PreviewBody
	b.ask(t, access.Viewer, "POST", "/v1/dead-letters/preview", `{"action":"archive"}`).into(t, http.StatusOK, &p)
	if p.DeadLetters != 1 || p.ByStatus[dlq.Resolved] != 1 {
		t.Errorf("preview: %+v", p)
	}
	if j := b.job(t, keeper, `{"action":"archive"}`); j.Progress.Changed != 1 {
		t.Errorf("the sweep: %+v", j.Progress)
	}
	if b.mustRead(t, old).Status != dlq.Archived || b.mustRead(t, young).Status != dlq.Resolved {
		t.Error("the sweep took the wrong dead letters")
	}
}

func TestArchives_Refused(t *testing.T) {
	t.Parallel()
	b, _ := setupArchive(t)
	id := b.writeSettled(t, "a", time.Time{}).EventID.String()
	for body, where := range map[string]string{
		`{"action":"purge"}`:                                     "body.filter",
		`{"action":"restore"}`:                                   "body.filter",
		`{"action":"purge","object":"x"}`:                        "body.object",
		`{"action":"restore","object":"x","ids":["` + id + `"]}`: "body.object",
		`{"action":"archive","filter":{}}`:                       "body.filter",
		`{"action":"archive","rate":1}`:                          "body",
		`{"action":"discard","filter":{},"force":true}`:          "body",
		`{"action":"restore","filter":{},"no_archive":true}`:     "body",
	} {
		p := b.ask(t, access.Admin, "POST", "/v1/jobs", body).problemIn(t, http.StatusUnprocessableEntity)
		if len(p.Errors) != 1 || p.Errors[0].Location != where {
			t.Errorf("%s: %+v, want it at %s", body, p.Errors, where)
		}
	}
	b.ask(t, access.Admin, "POST", "/v1/jobs", `{"action":"restore","object":"2026/01/01/none"}`).problemIn(t, http.StatusNotFound)
	for _, action := range []string{"purge", "restore", "archive"} {
		b.ask(t, access.Operator, "POST", "/v1/jobs", `{"action":"`+action+`","filter":{}}`).problemIn(t, http.StatusForbidden)
	}
	if lines := b.auditEntries(t, ""); len(lines) != 0 {
		t.Errorf("what could not begin is in the audit: %+v", lines)
	}

	// Without an archive a purge deletes dead letters, which must be requested
	// explicitly.
	b = setup(t, nil)
	for _, action := range []string{"purge", "restore"} {
		p := b.ask(t, access.Admin, "POST", "/v1/jobs", `{"action":"`+action+`","filter":{}}`).problemIn(t, http.StatusConflict)
		if !strings.Contains(p.Detail, "archive.url") {
			t.Errorf("%s: %+v", action, p)
		}
	}
	b.ask(t, access.Admin, "POST", "/v1/jobs", `{"action":"purge","filter":{},"no_archive":true}`).into(t, http.StatusAccepted, nil)
	var a struct{ Configured bool }
	b.ask(t, access.Viewer, "GET", "/v1/archives", "").into(t, http.StatusOK, &a)
	if a.Configured {
		t.Error("an archive is said to be there")
	}
}
