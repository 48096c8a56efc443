package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

type thingInput struct {
	ID string `path:"id"`
}

// Problem has the name of a schema of the admin API.
type Problem struct {
	huma.ErrorModel
	OutcomeUnknown bool `json:"outcome_unknown,omitempty"`
}

// things registers routes of another package. The id decides the response to a change.
func things(made *[]string) func(huma.API) {
	answers := map[string]error{
		"refused": &Problem{ErrorModel: huma.ErrorModel{Status: 409, Title: "Conflict", Detail: "The thing is shipped."}},
		"stale":   &Problem{ErrorModel: huma.ErrorModel{Status: 412, Detail: "The thing is at version 2."}},
		"away":    &Problem{ErrorModel: huma.ErrorModel{Status: 503, Detail: "Nothing was stored."}},
		"unknown": &Problem{ErrorModel: huma.ErrorModel{Status: 503, Detail: "It may be stored."}, OutcomeUnknown: true},
		"gone":    &Problem{ErrorModel: huma.ErrorModel{Status: httpapi.StatusHungUp, Detail: "The caller has gone."}},
		"defect":  errors.New("a defect"),
	}
	return func(h huma.API) {
		huma.Register(h, huma.Operation{OperationID: "get-thing", Method: http.MethodGet, Path: "/v1/things/{id}", Summary: "Get"},
			func(context.Context, *thingInput) (*struct{ Body Problem }, error) {
				return &struct{ Body Problem }{}, nil
			})
		huma.Register(h, huma.Operation{OperationID: "change-thing", Method: http.MethodPost, Path: "/v1/things/{id}/change", Summary: "Change"},
			func(_ context.Context, in *thingInput) (*struct{}, error) {
				*made = append(*made, in.ID)
				return nil, answers[in.ID]
			})
		huma.Register(h, huma.Operation{OperationID: "change-things", Method: http.MethodPost, Path: "/v1/things/change", Summary: "Change many", Metadata: map[string]any{httpapi.AuditBody: true}},
			func(context.Context, *struct{ RawBody []byte }) (*struct{}, error) {
				return nil, &struct {
					Problem
					Result map[string]int `json:"result"`
				}{*answers["unknown"].(*Problem), map[string]int{"changed": 7}}
			})
		huma.Register(h, access.Needs(access.Admin, huma.Operation{OperationID: "drop-thing", Method: http.MethodDelete, Path: "/v1/things/{id}", Summary: "Drop"}),
			func(_ context.Context, in *thingInput) (*struct{}, error) {
				*made = append(*made, "drop "+in.ID)
				return nil, nil
			})
	}
}

func withThings(t *testing.T) (*fixture, *[]string) {
	t.Helper()
	made := new([]string)
	return setup(t, func(c *Config) { c.Routes = []func(huma.API){things(made)} }), made
}

// Operations of other packages need roles like the ones of the API.
func TestRoutes_EachRole(t *testing.T) {
	t.Parallel()
	b, made := withThings(t)
	for _, tt := range []struct {
		method, path string
		need         access.Role
	}{
		{"GET", "/v1/things/a", access.Viewer},
		{"POST", "/v1/things/a/change", access.Operator},
		{"DELETE", "/v1/things/a", access.Admin},
	} {
		for _, role := range append(access.Roles, "") {
			before := len(*made)
			a := b.ask(t, role, tt.method, tt.path, "")
			switch {
			case role == "" && a.code != 401, role != "" && !role.May(tt.need) && a.code != 403, role.May(tt.need) && a.code > 204:
				t.Errorf("%s %s by %q = %d %s", tt.method, tt.path, role, a.code, a.body)
			case !role.May(tt.need) && len(*made) != before:
				t.Errorf("%s %s by %q was made", tt.method, tt.path, role)
			}
		}
	}
	if lines := b.auditEntries(t, ""); len(lines) != 3 {
		t.Errorf("%d lines in the audit, want those of two operators' changes and an admin's: %+v", len(lines), lines)
	}
}

// Each change is recorded in the audit trail with its response.
func TestRoutes_ChangesAreAudited(t *testing.T) {
	t.Parallel()
	b, made := withThings(t)
	b.ask(t, access.Viewer, "GET", "/v1/things/a", "")
	for id, want := range map[string]struct {
		code           int
		state, outcome string
	}{
		"good":    {204, auditDone, ""},
		"refused": {409, auditRefused, "The thing is shipped."},
		"stale":   {412, auditRefused, "The thing is at version 2."},
		"away":    {503, auditRefused, "Nothing was stored."},
		"unknown": {503, auditUnknown, "It may be stored."},
		"gone":    {httpapi.StatusHungUp, auditUnknown, "The caller has gone."},
		"defect":  {500, auditUnknown, "unexpected error occurred"},
	} {
		a := b.ask(t, access.Operator, "POST", "/v1/things/"+id+"/change", "", httpapi.ReasonHeader, "gr%C3%BC%C3%9Fe%20"+id)
		if a.code != want.code {
			t.Errorf("%s = %d %s", id, a.code, a.body)
		}
		l := b.auditEntries(t, "")[0]
		if l.Action != "change-thing" || l.Target != id || l.Reason != "grüße "+id || l.Actor != "a-operator" || l.State != want.state || l.Outcome != want.outcome || l.Finished == nil {
			t.Errorf("%s: audit %+v", id, l)
		}
	}
	if n := len(b.auditEntries(t, "")); n != 7 {
		t.Errorf("%d lines, want 7: reading is not audited", n)
	}
	b.ask(t, access.Operator, "POST", "/v1/things/change", `{"a":1}`).into(t, 503, nil)
	if l := b.auditEntries(t, "")[0]; l.State != auditUnknown || l.Outcome != `It may be stored.; {"changed":7}` {
		t.Errorf("a change of many that fails: audit %+v", l)
	}
	*made = nil
	for _, reason := range []string{"%zz", "%", strings.Repeat("a", 8001), "", "%20"} {
		if p := b.ask(t, access.Operator, "POST", "/v1/things/good/change", "", httpapi.ReasonHeader, reason).problemIn(t, 422); p.RequestID != "" {
			t.Errorf("the refusal has a member that the operation's description does not know: %+v", p)
		}
	}
	// A change that cannot be recorded is not made.
	b.fault("admin_audit", engine.OpWrite, 0)
	if p := b.ask(t, access.Operator, "POST", "/v1/things/good/change", "").problemIn(t, 503); p.OutcomeUnknown {
		t.Errorf("%+v", p)
	}
	if len(*made) != 0 {
		t.Errorf("made %v although the audit has none of it", *made)
	}
}

// The operations on topics are part of the API: a viewer may read records, a request
// without a token may not, and without a broker they are unavailable.
func TestRoutes_Topics(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"/v1/topics", "/v1/topics/OrderCreated/records"} {
		b.ask(t, "", "GET", path, "").problemIn(t, 401)
		b.ask(t, access.Viewer, "GET", path, "").problemIn(t, 503)
	}
	b.ask(t, access.Viewer, "GET", "/v1/topics/payments/records", "").problemIn(t, 404)
	b.exampleTopic(t)
	for _, path := range []string{"/v1/topics", "/v1/topics/OrderCreated/records"} {
		if a := b.ask(t, access.Viewer, "GET", path, ""); a.code != 200 || !strings.Contains(string(a.body), "OrderCreated") {
			t.Errorf("%s = %d %s", path, a.code, a.body)
		}
	}
	raw, err := b.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"list-topics", "list-records"} {
		if !strings.Contains(string(raw), `"operationId":"`+id+`"`) {
			t.Errorf("the description has no operation %s", id)
		}
	}
}

// The description contains the operations, and two schemas for two types of the same
// name.
func TestRoutes_AreDescribed(t *testing.T) {
	t.Parallel()
	b, _ := withThings(t)
	raw, err := b.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Tags       []string
			Role       string `json:"x-role"`
			Parameters []struct{ Name string }
			Responses  map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	op := doc.Paths["/v1/things/{id}/change"]["post"]
	if op.Role != "operator" || len(op.Tags) != 1 || op.Tags[0] != "things" || len(op.Parameters) != 2 || op.Responses["403"] == nil {
		t.Errorf("change-thing is described as %+v", op)
	}
	if get := doc.Paths["/v1/things/{id}"]["get"]; get.Role != "viewer" || len(get.Parameters) != 1 {
		t.Errorf("get-thing is described as %+v", get)
	}
	if doc.Components.Schemas["Problem"] == nil || doc.Components.Schemas["AdminProblem"] != nil {
		t.Error("two types of problems are not one schema")
	}
	page := b.ask(t, "", "GET", "/docs", "")
	if page.code != 200 || !strings.Contains(string(page.body), "swagger-ui") || !strings.Contains(page.header.Get("Content-Security-Policy"), "script-src 'self'") {
		t.Errorf("/docs = %d %v", page.code, page.header)
	}
	if a := b.ask(t, "", "GET", "/docs/none", ""); a.code != 404 || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("/docs/none = %d", a.code)
	}
}

// slowBody is a context whose body never arrives before a read deadline.
type slowBody struct {
	humaContext
	deadline time.Time
}

func (c *slowBody) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *slowBody) BodyReader() io.Reader             { return c }

func (c *slowBody) Read([]byte) (int, error) {
	if c.deadline.IsZero() {
		return 0, errors.New("it would be waited for ever")
	}
	return 0, os.ErrDeadlineExceeded
}

// The body that is read for the audit trail is bounded in time and size, with different
// problems.
func TestRoutes_WhatTheAuditReadsIsBounded(t *testing.T) {
	t.Parallel()
	_, err := (&watched{humaContext: &slowBody{}}).read()
	if p := unread(t.Context(), err); p.Status != http.StatusRequestTimeout {
		t.Errorf("a body that does not come: %v, %d", err, p.Status)
	}
	for want, err := range map[int]error{http.StatusRequestEntityTooLarge: errTooLarge, http.StatusBadRequest: io.ErrUnexpectedEOF} {
		if p := unread(t.Context(), err); p.Status != want {
			t.Errorf("%v is %d, want %d", err, p.Status, want)
		}
	}
}
