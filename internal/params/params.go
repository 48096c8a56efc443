// Package params judges the query parameters of an API beyond what huma does.
package params

import (
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"
)

// RefuseEmpty returns a middleware that answers 422 to a query parameter that is
// there and empty although its description takes no empty text, such as a time
// or a number. huma takes it for one that was left out: a caller whose variable
// was empty would be shown more than it asked for.
func RefuseEmpty(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		u := ctx.URL()
		query, err := url.ParseQuery(u.RawQuery)
		if err != nil {
			query = u.Query() // what can be read of it, as huma does
		}
		var bad []error
		for _, p := range ctx.Operation().Parameters {
			if values, there := query[p.Name]; there && p.In == "query" && !mayBeEmpty(p.Schema) && len(values) > 0 && values[0] == "" {
				bad = append(bad, &huma.ErrorDetail{Location: "query." + p.Name, Message: "is empty: give a value or leave it out", Value: ""})
			}
		}
		if len(bad) == 0 {
			next(ctx)
			return
		}
		_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, "validation failed", bad...) // a caller that hung up misses nothing
	}
}

// mayBeEmpty says that an empty text fits a schema: other than texts and arrays of
// them, and texts in a form, everything has a value.
func mayBeEmpty(s *huma.Schema) bool {
	return s == nil || s.Type == huma.TypeArray || s.Type == huma.TypeString && s.Format == "" && len(s.Enum) == 0
}
