package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// TestAccess_EachRoleByEachOperation covers all operations: a new one must be added here
// with its role.
func TestAccess_EachRoleByEachOperation(t *testing.T) {
	t.Parallel()
	needs := map[string]access.Role{
		"GET /v1/me": access.Viewer, "GET /v1/dead-letters": access.Viewer, "GET /v1/dead-letters/{event_id}": access.Viewer,
		"GET /v1/dead-letters/stats": access.Viewer, "GET /v1/dead-letters/groups": access.Viewer, "GET /v1/audit": access.Viewer,
		"GET /v1/jobs": access.Viewer, "GET /v1/jobs/{id}": access.Viewer, "GET /v1/relays": access.Viewer, "GET /v1/history": access.Viewer, "GET /v1/status": access.Viewer,
		"GET /v1/archives": access.Viewer, "GET /v1/live": access.Viewer, "GET /v1/events/{id}": access.Viewer, "GET /v1/events": access.Viewer, "GET /v1/aggregates/{id}": access.Viewer, "GET /v1/topics": access.Viewer, "GET /v1/topics/{topic}/records": access.Viewer, "POST /v1/dead-letters/preview": access.Viewer,
		"POST /v1/dead-letters/{event_id}/replay": access.Operator, "POST /v1/dead-letters/{event_id}/unblock": access.Operator,
		"POST /v1/dead-letters/{event_id}/suspend": access.Operator, "POST /v1/dead-letters/{event_id}/resolve": access.Operator, "POST /v1/dead-letters/{event_id}/reopen": access.Operator,
		"POST /v1/dead-letters/{event_id}/set": access.Operator, "POST /v1/dead-letters/{event_id}/discard": access.Admin, "POST /v1/dead-letters/{event_id}/edit": access.Admin,
		"POST /v1/jobs": access.Operator, "POST /v1/jobs/{id}/pause": access.Operator,
		"POST /v1/subscriptions/{name}/redeliver": access.Operator, "POST /v1/jobs/{id}/resume": access.Operator, "POST /v1/jobs/{id}/cancel": access.Admin, "POST /v1/relays/{name}/reshard": access.Admin,
	}
	b := setup(t, nil)
	b.exampleTopic(t)
	seen := 0
	for path, item := range b.ops.api.OpenAPI().Paths {
		for method, op := range map[string]any{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if fmt.Sprint(op) == "<nil>" {
				continue
			}
			name := method + " " + path
			need, known := needs[name]
			if !known {
				t.Errorf("%s: this test does not know who may use it", name)
				continue
			}
			seen++
			url := strings.NewReplacer("{event_id}", "01a2005c-395d-72e3-8401-994110828553", "{id}", "01a2005c-395d-11e3-8401-994110828553", "{topic}", "OrderCreated", "{name}", "orders").Replace(path)
			body := ""
			if method == "POST" {
				body = `{}`
			}
			for _, role := range append(access.Roles, "") {
				if strings.HasSuffix(path, "/live") && role.May(need) {
					continue // it does not end; TestLive checks it
				}
				a := b.ask(t, role, method, url, body)
				switch {
				case role == "" && a.code != http.StatusUnauthorized:
					t.Errorf("%s by nobody = %d, want 401", name, a.code)
				case role != "" && !role.May(need) && a.code != http.StatusForbidden:
					t.Errorf("%s by %s = %d, want 403", name, role, a.code)
				case role.May(need) && (a.code == http.StatusForbidden || a.code == http.StatusUnauthorized || a.code >= 500):
					t.Errorf("%s by %s = %d: %s", name, role, a.code, a.body)
				}
				if a.header.Get("Content-Security-Policy") == "" || a.header.Get(access.RequestIDHeader) == "" || a.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s by %q: headers missing: %v", name, role, a.header)
				}
			}
		}
	}
	if seen != len(needs) {
		t.Errorf("saw %d operations of %d", seen, len(needs))
	}
	// A job needs the role of its action; purge, restore and archive need the role admin.
	for _, action := range jobs.Actions {
		need := access.Admin
		switch action {
		case dlq.ActionReplay, dlq.ActionUnblock, dlq.ActionSuspend, dlq.ActionResolve, dlq.ActionReopen, dlq.ActionSet:
			need = access.Operator
		}
		var labels *dlq.Labels
		set, topic := "", ""
		if action == dlq.ActionRedirect {
			topic, set = "T", `,"topic":"T"`
		}
		if action == dlq.ActionSet {
			labels, set = &dlq.Labels{Priority: new(1)}, `,"set":{"priority":1}`
		}
		for _, role := range access.Roles {
			a := b.ask(t, role, "POST", "/v1/jobs", fmt.Sprintf(`{"action":%q,"filter":{},"dry_run":true%s}`, action, set))
			if forbidden := a.code == http.StatusForbidden; forbidden == role.May(need) {
				t.Errorf("a job to %s by %s = %d: %s", action, role, a.code, a.body)
			}
		}
		// An operator cannot resume such a job, but can pause it.
		job, err := b.jobs().Create(t.Context(), jobs.Spec{Action: action, Set: labels, Topic: topic}, dlq.Actor{Name: "mara"})
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range access.Roles {
			path := "/v1/jobs/" + job.ID.String()
			if a := b.ask(t, role, "POST", path+"/pause", `{}`); (a.code == http.StatusOK) != role.May(access.Operator) {
				t.Errorf("pausing a job to %s by %s = %d: %s", action, role, a.code, a.body)
			}
			a := b.ask(t, role, "POST", path+"/resume", `{}`)
			if forbidden := a.code == http.StatusForbidden; forbidden == role.May(need) || !forbidden && a.code != http.StatusOK {
				t.Errorf("resuming a job to %s by %s = %d: %s", action, role, a.code, a.body)
			}
		}
	}
	for _, open := range []string{"/livez", "/readyz", "/openapi.json", "/problems"} {
		if a := b.ask(t, "", "GET", open, ""); a.code != http.StatusOK {
			t.Errorf("%s by nobody = %d: %s", open, a.code, a.body)
		}
	}
}

// A consumer reads the dead letters of its subscriptions, and nothing else.
func TestAccess_ConsumerReadsItsDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ids := make(map[string]string)
	for i, table := range []string{"subscription.mail", "subscription.sms-de", "subscription.other", "subscription.mailing", testTable} {
		l := testDeadLetter(fmt.Sprint("a", i), 1)
		l.Table = table
		b.writeDeadLetter(t, l, time.Time{})
		ids[table] = l.EventID.String()
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v1/dead-letters?table=subscription.mail", 200},
		{"GET", "/v1/dead-letters?table=subscription.sms-de", 200},
		{"GET", "/v1/dead-letters?table=subscription.other", 403},
		{"GET", "/v1/dead-letters?table=subscription.mailing", 403},
		{"GET", "/v1/dead-letters?table=subscription.mail*", 403},
		{"GET", "/v1/dead-letters?table=" + testTable, 403},
		{"GET", "/v1/dead-letters", 403},
		{"GET", "/v1/dead-letters/" + ids["subscription.mail"], 200},
		{"GET", "/v1/dead-letters/" + ids["subscription.sms-de"], 200},
		{"GET", "/v1/dead-letters/" + ids["subscription.other"], 404},
		{"GET", "/v1/dead-letters/" + ids[testTable], 404},
		{"POST", "/v1/dead-letters/" + ids["subscription.mail"] + "/replay", 403},
		{"GET", "/v1/dead-letters/stats", 403},
		{"GET", "/v1/dead-letters/groups", 403},
	} {
		body := ""
		if c.method == "POST" {
			body = `{}`
		}
		a := b.ask(t, consumerOfMail, c.method, c.path, body)
		if a.code != c.want {
			t.Errorf("%s %s = %d, want %d: %s", c.method, c.path, a.code, c.want, a.body)
		}
		if table, ok := strings.CutPrefix(c.path, "/v1/dead-letters?table="); ok && c.want == 200 && (!strings.Contains(string(a.body), ids[table]) || strings.Count(string(a.body), `"event_id"`) != 1) {
			t.Errorf("%s lists %s, want %s alone", c.path, a.body, ids[table])
		}
	}
}
