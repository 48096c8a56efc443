package params

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/humatest"
)

func TestRefuseEmpty(t *testing.T) {
	t.Parallel()
	_, api := humatest.New(t)
	api.UseMiddleware(RefuseEmpty(api))
	huma.Register(api, huma.Operation{Method: http.MethodGet, Path: "/things"}, func(context.Context, *struct {
		Since  time.Time `query:"since"`
		Limit  int       `query:"limit"`
		State  string    `query:"state" enum:"a,b"`
		Cursor string    `query:"cursor"`
		Names  []string  `query:"names"`
	},
	) (*struct{}, error) {
		return nil, nil
	})
	for query, want := range map[string]string{
		"": "", "cursor=&names=": "", "since=2026-01-01T00:00:00Z&limit=1&state=a": "", "other=": "",
		"since=": "query.since", "since": "query.since", "limit=&cursor=x": "query.limit", "state=": "query.state",
	} {
		r := api.Get("/things?" + query)
		if want == "" && r.Code != http.StatusNoContent || want != "" && (r.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Body.String(), want)) {
			t.Errorf("GET /things?%s = %d %s, want it to name %q", query, r.Code, r.Body, want)
		}
	}
}
