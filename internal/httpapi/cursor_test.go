package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/humatest"
)

// A cursor continues the list that returned it: with the same path and filters, and any times and
// limit.
func TestPage(t *testing.T) {
	t.Parallel()
	_, api := humatest.New(t)
	list := func(_ context.Context, in *struct {
		Of    string    `path:"of"`
		State string    `query:"state" default:"waiting"`
		Key   string    `query:"key"`
		Tags  []string  `query:"tag"`
		Since time.Time `query:"since"`
		Limit int       `query:"limit" default:"10"`
		Page
	},
	) (*struct{ Body struct{ Next, At string } }, error) {
		out := new(struct{ Body struct{ Next, At string } })
		out.Body.Next, out.Body.At = in.Next("a.b"), in.Cursor
		return out, nil
	}
	huma.Register(api, huma.Operation{OperationID: "list", Method: http.MethodGet, Path: "/lists/{of}"}, list)
	const first = "/lists/a?key=z1&tag=x,y"
	next := api.Get(first).Body.String()
	next = url.QueryEscape(strings.Split(next, `"`)[3])
	for query, ok := range map[string]bool{
		first: true, first + "&limit=3": true, first + "&since=2026-01-01T00:00:00Z": true, first + "&state=waiting": true, "/lists/a?tag=x,y&key=z1": true,
		"/lists/a?key=z0&tag=x,y": false, "/lists/a?key=z1": false, "/lists/a?tag=x,y": false, first + ",z": false, first + "&state=done": false, "/lists/b?key=z1&tag=x,y": false,
		"/lists/a?key=z1,tag&tag=x,y": false,
	} {
		r := api.Get(query + "&cursor=" + next)
		if ok && (r.Code != 200 || !strings.Contains(r.Body.String(), `"At":"a.b"`)) {
			t.Errorf("%s with the cursor = %d %s, want its position", query, r.Code, r.Body)
		}
		if !ok && (r.Code != 422 || !strings.Contains(r.Body.String(), `"query.cursor"`)) {
			t.Errorf("%s with the cursor = %d %s, want 422 for query.cursor", query, r.Code, r.Body)
		}
	}
	for _, bad := range []string{"x", ".", "a.b", "." + next[strings.LastIndexByte(next, '.')+1:], next + "A"} {
		if r := api.Get(first + "&cursor=" + bad); r.Code != 422 || strings.Count(r.Body.String(), `"query.cursor"`) != 1 {
			t.Errorf("cursor %s = %d %s, want 422, once", bad, r.Code, r.Body)
		}
	}
	if r := api.Get(first + "&cursor=a.b.AAAAAAAA"); r.Code != 422 || !strings.Contains(r.Body.String(), ProblemCursor[:40]) {
		t.Errorf("a cursor with another hash = %d %s, want 422", r.Code, r.Body)
	}
	if next := Cursor("", "a"); next != "" {
		t.Errorf("the cursor of no position is %q", next)
	}
}
