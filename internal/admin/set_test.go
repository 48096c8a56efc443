package admin

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// An operator sets priority and tags; the list, its filters and the audit trail show it.
func TestSet_IsListedAndAudited(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	l := b.writeDeadLetter(t, testDeadLetter("a", 1), time.Time{})
	other := testDeadLetter("b", 1)
	other.Table, other.Priority, other.Tags = "subscription.inventory", -3, []string{"night"}
	b.writeDeadLetter(t, other, time.Time{})
	path := "/v1/dead-letters/" + l.EventID.String() + "/set"
	var got struct {
		DeadLetter Summary `json:"dead_letter"`
	}
	a := b.ask(t, access.Operator, "POST", path, `{"priority":10,"add_tags":["vip","night"]}`, httpapi.ReasonHeader, "INC-1", "If-Match", `"1"`).into(t, http.StatusOK, &got)
	if x := got.DeadLetter; x.Priority != 10 || !slices.Equal(x.Tags, []string{"night", "vip"}) || x.Status != l.Status || a.header.Get("ETag") != `"2"` {
		t.Errorf("after it: %s", a.body)
	}
	b.ask(t, access.Operator, "POST", path, `{"priority":1}`, "If-Match", `"1"`).problemIn(t, http.StatusPreconditionFailed)
	b.ask(t, access.Viewer, "POST", path, `{"priority":1}`).problemIn(t, http.StatusForbidden)
	lines := b.auditEntries(t, "action=set")
	if len(lines) != 2 || lines[1].State != auditDone || lines[1].Reason != "INC-1" || string(lines[1].Detail) != `{"priority":10,"add_tags":["vip","night"]}` || lines[0].State != auditRefused {
		t.Errorf("audit: %+v", lines)
	}
	for query, want := range map[string]int{
		"tag=night": 2, "tag=night,vip": 1, "tag=none": 0, "min_priority=10": 1, "min_priority=-3": 2, "min_priority=-2": 1,
		"table=subscription.inventory": 1, "table=" + url.QueryEscape(l.Table): 1, "table=x": 0, "table=subscription.inventory&tag=vip": 0,
	} {
		var page struct {
			DeadLetters []Summary `json:"dead_letters"`
		}
		b.ask(t, access.Viewer, "GET", "/v1/dead-letters?"+query, "").into(t, http.StatusOK, &page)
		if len(page.DeadLetters) != want {
			t.Errorf("%s lists %d dead letters, want %d", query, len(page.DeadLetters), want)
		}
		var groups struct {
			LookedAt int `json:"looked_at"`
		}
		b.ask(t, access.Viewer, "GET", "/v1/dead-letters/groups?"+query, "").into(t, http.StatusOK, &groups)
		if groups.LookedAt != want {
			t.Errorf("%s groups %d dead letters, want %d", query, groups.LookedAt, want)
		}
	}
}

// A job of the API replays by priority, within its limit, and another sets labels.
func TestJobs_ByPriorityAndSet(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var high string
	for i, priority := range []int{0, 5, -5} {
		l := testDeadLetter("a"+string(rune('0'+i)), 1)
		l.Priority = priority
		b.writeDeadLetter(t, l, time.Time{})
		if priority == 5 {
			high = l.EventID.String()
		}
	}
	const body = `{"action":"replay","filter":{"min_priority":-4},"by_priority":true,"limit":1`
	var dry dryJobBody
	b.ask(t, access.Operator, "POST", "/v1/jobs", body+`,"dry_run":true}`).into(t, http.StatusOK, &dry)
	if dry.Preview.DeadLetters != 1 {
		t.Errorf("preview: %+v", dry.Preview)
	}
	var made JobBody
	b.ask(t, access.Operator, "POST", "/v1/jobs", body+`}`).into(t, http.StatusAccepted, &made)
	if !made.ByPriority || made.IDs != 1 {
		t.Errorf("job: %+v", made)
	}
	id, err := eventID(t.Context(), "", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	j, err := jobs.New(b.store).Read(t.Context(), id)
	if err != nil || len(j.IDs) != 1 || j.IDs[0].String() != high {
		t.Errorf("the job has %v, %v, want %s", j.IDs, err, high)
	}
	made = JobBody{}
	b.ask(t, access.Operator, "POST", "/v1/jobs", `{"action":"set","filter":{},"set":{"add_tags":["x"]}}`).into(t, http.StatusAccepted, &made)
	if made.Action != dlq.ActionSet || made.Set == nil || !slices.Equal(made.Set.AddTags, []string{"x"}) {
		t.Errorf("job: %+v", made)
	}
	b.ask(t, access.Viewer, "POST", "/v1/jobs", `{"action":"set","filter":{},"set":{"add_tags":["x"]}}`).problemIn(t, http.StatusForbidden)
}
