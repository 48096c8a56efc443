package messages

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Every operation of orders, messages and event streams declares its security; HEAD
// requires the role of GET.
func TestServer_EveryOperationDeclaresItsSecurity(t *testing.T) {
	t.Parallel()
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "vic", Role: access.Viewer, Hash: hash}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, api := range apis(t) {
		for name, g := range map[string]*access.Gate{"with tokens": gate, "without": nil} {
			t.Run(api.Name+" "+name, func(t *testing.T) { declaresSecurity(t, api, g, secret) })
		}
	}
}

func declaresSecurity(t *testing.T, api apiserver.API, g *access.Gate, secret string) {
	t.Parallel()
	srv := must(apiserver.New(api, apiserver.Config{Gate: g}))
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Security    []map[string][]string `json:"security"`
			Role        access.Role           `json:"x-role"`
			Responses   map[string]any        `json:"responses"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(world.Request(t, srv.Handler(), "GET", "/openapi.json", "").Text), &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			seen++
			if len(op.Security) != 2 || op.Security[0]["bearer"] == nil || len(op.Security[1]) != 0 {
				t.Errorf("%s declares the security %v, want a token, or none", op.OperationID, op.Security)
			}
			want := access.Operator
			switch {
			case method == "get":
				want = access.Viewer
			case op.OperationID == "post-message" || op.OperationID == "post-messages":
				want = access.Producer
			}
			if op.Role != want || op.Responses["401"] == nil || op.Responses["403"] == nil {
				t.Errorf("%s requires the role %q and describes %d responses, want %s, 401 and 403", op.OperationID, op.Role, len(op.Responses), want)
			}
			if g == nil || method != "get" || strings.HasSuffix(path, "/stream") {
				continue
			}
			url := strings.ReplaceAll(path, "{id}", "x") + "?limit=none" // refused by its form, as there is no database
			for _, m := range []string{http.MethodGet, http.MethodHead} {
				if r := world.Request(t, srv.Handler(), m, url, "", "Authorization", "Bearer "+secret); r.Status == http.StatusForbidden {
					t.Errorf("%s %s by a viewer = 403", m, path)
				}
				if r := world.Request(t, srv.Handler(), m, url, ""); r.Status != http.StatusUnauthorized {
					t.Errorf("%s %s without a token = %d, want 401", m, path, r.Status)
				}
			}
		}
	}
	if seen != 9 {
		t.Errorf("%d operations, want 9", seen)
	}
}
