package params

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/humatest"
)

// A query that huma would read differently than its caller means is refused by name.
func TestJudge(t *testing.T) {
	t.Parallel()
	_, api := humatest.New(t)
	api.UseMiddleware(Judge(api))
	huma.Register(api, huma.Operation{Method: http.MethodGet, Path: "/things"}, func(context.Context, *struct {
		Since  time.Time `query:"since"`
		Limit  int       `query:"limit"`
		State  string    `query:"state" enum:"a,b"`
		Cursor string    `query:"cursor"`
		Page   string    `query:"page" pattern:"^[0-9]+$"`
		Who    string    `query:"who" minLength:"1"`
		Names  []string  `query:"names"`
		Tags   []string  `query:"tags,explode"`
	},
	) (*struct{}, error) {
		return nil, nil
	})
	for query, want := range map[string]string{
		"": "", "cursor=&names=": "", "since=2026-01-01T00:00:00Z&limit=1&state=a": "", "names=a,b": "", "tags=a&tags=b": "",
		"since=": "query.since", "since": "query.since", "limit=&cursor=x": "query.limit", "state=": "query.state",
		"other=": "query.other", "limt=1": "limit, names, page, since, state, tags, who", "page=": "query.page", "who=": "query.who", "page=1&who=a": "", "LIMIT=1": "query.LIMIT", "cursor=x&cursor=x": "query.cursor", "limit=1&limit=2": "query.limit", "cursor=%ff": "query.cursor", "tags=a&tags=%ff": "query.tags",
		"names=a&names=b": "query.names", "limit=1;cursor=x": `"query"`, "cursor=%zz": `"query"`,
	} {
		r := api.Get("/things?" + query)
		if want == "" && r.Code != http.StatusNoContent || want != "" && (r.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Body.String(), want)) {
			t.Errorf("GET /things?%s = %d %s, want it to name %q", query, r.Code, r.Body, want)
		}
	}
}

// The response is short for any number of parameters.
func TestJudge_ManyAreNotAllNamed(t *testing.T) {
	t.Parallel()
	_, api := humatest.New(t)
	api.UseMiddleware(Judge(api))
	huma.Register(api, huma.Operation{Method: http.MethodGet, Path: "/things"}, func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
	if n := strings.Count(api.Get("/things?"+strings.Join(names(1000), "&")).Body.String(), "is unknown"); n != maxNamed {
		t.Errorf("%d of 1,000 are named, want %d", n, maxNamed)
	}
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "p" + strconv.Itoa(i)
	}
	return out
}
