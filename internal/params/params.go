// Package params judges the query parameters of an API beyond what huma does.
package params

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// maxTold is how many parameters an answer names.
const maxTold = 20

// Judge returns a middleware that answers 422 to a query that huma would take as
// another one than its caller means: a parameter that the operation does not have, as
// one that is misspelt; one that is given twice, of which huma sees the first; one
// that is empty although its description takes no empty text, such as a time or a
// number; one that is not UTF-8; and a query that is not encoded as one. Who asks for less must not be shown
// more, or have more changed.
func Judge(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		u := ctx.URL()
		if u.RawQuery == "" {
			next(ctx)
			return
		}
		bad := judge(u.RawQuery, ctx.Operation())
		if len(bad) == 0 {
			next(ctx)
			return
		}
		_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "validation failed", bad...) // a caller that hung up misses nothing
	}
}

func judge(raw string, op *huma.Operation) (bad []error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return []error{&huma.ErrorDetail{Location: "query", Message: "is not encoded as a URL wants it: parameters are separated by &, and other characters than letters and digits percent-encoded"}}
	}
	known := map[string]*huma.Param{}
	for _, p := range op.Parameters {
		if p.In == "query" {
			known[p.Name] = p
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values, p := query[name], known[name]
		problem := ""
		switch {
		case p == nil:
			problem = unknown(known)
		case slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }):
			problem = "is not UTF-8, percent-encoded"
		case len(values) > 1 && !repeats(p):
			problem = "is given more than once: give it once"
		case values[0] == "" && !mayBeEmpty(p.Schema):
			problem = "is empty: give a value or leave it out"
		default:
			continue
		}
		if bad = append(bad, &huma.ErrorDetail{Location: "query." + name, Message: problem}); len(bad) == maxTold {
			break
		}
	}
	return bad
}

func unknown(known map[string]*huma.Param) string {
	if len(known) == 0 {
		return "is not known: there are no parameters here"
	}
	return "is not known: there are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// repeats says that a parameter is a list whose members come one by one.
func repeats(p *huma.Param) bool {
	return p.Schema != nil && p.Schema.Type == huma.TypeArray && (p.Explode == nil || *p.Explode)
}

// mayBeEmpty says that an empty text fits a schema: other than texts and arrays of
// them, and texts in a form, everything has a value.
func mayBeEmpty(s *huma.Schema) bool {
	return s == nil || s.Type == huma.TypeArray || s.Type == huma.TypeString && s.Format == "" && len(s.Enum) == 0
}
