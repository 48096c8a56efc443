// Package params validates the query parameters of an API beyond huma's checks.
package params

import (
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// maxNamed is how many parameters a response names.
const maxNamed = 20

// Judge returns a middleware that answers 422 to a query that huma would read
// differently than its caller means: with an unknown parameter, such as a misspelt one;
// with a parameter given twice, of which huma reads the first; with an empty parameter
// whose type has no empty value, such as a time or a number; and with text that is not
// UTF-8 or not URL-encoded. A caller that filters must not be shown more, or have more
// changed.
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
		return []error{&huma.ErrorDetail{Location: "query", Message: "is not URL-encoded: separate parameters by & and percent-encode other characters than letters and digits"}}
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
			problem = "is given more than once; use it once"
		case values[0] == "" && !mayBeEmpty(p.Schema):
			problem = "is empty; set a value or omit it"
		default:
			continue
		}
		if bad = append(bad, &huma.ErrorDetail{Location: "query." + name, Message: problem}); len(bad) == maxNamed {
			break
		}
	}
	return bad
}

func unknown(known map[string]*huma.Param) string {
	if len(known) == 0 {
		return "is unknown; this operation has no parameters"
	}
	return "is unknown; the parameters are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// repeats reports whether a parameter is a list whose members come one by one.
func repeats(p *huma.Param) bool {
	return p.Schema != nil && p.Schema.Type == huma.TypeArray && (p.Explode == nil || *p.Explode)
}

// mayBeEmpty reports whether an empty text fits a schema: only texts without a form
// and arrays of them can be empty.
func mayBeEmpty(s *huma.Schema) bool {
	return s == nil || s.Type == huma.TypeArray || s.Type == huma.TypeString && s.Format == "" && matchesEmpty(s.Pattern) && s.MinLength == nil && len(s.Enum) == 0
}

// matchesEmpty reports whether a pattern, or none, permits an empty value.
func matchesEmpty(pattern string) bool {
	ok, err := regexp.MatchString(pattern, "")
	return ok && err == nil
}
