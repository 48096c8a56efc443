package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// Discreet has an API repeat nothing in its problems of what callers sent, where
// huma would: it may be a secret in the wrong place, or a script. The field's name
// and what is wrong with it are left.
func Discreet(c *huma.Config) {
	c.Transformers = append(c.Transformers, withoutValues)
}

// DescribeDiscreet takes out of an API's description what Discreet takes out of its
// answers, once its operations are registered.
func DescribeDiscreet(doc *huma.OpenAPI) {
	if s := doc.Components.Schemas.Map()["ErrorDetail"]; s != nil {
		delete(s.Properties, "value")
		s.PrecomputeMessages() // huma keeps the names apart
	}
}

func withoutValues(_ huma.Context, _ string, v any) (any, error) {
	var all []*huma.ErrorDetail
	switch p := v.(type) {
	case *huma.ErrorModel:
		all = p.Errors
	case interface{ Details() []*huma.ErrorDetail }:
		all = p.Details()
	}
	for _, e := range all {
		e.Value, e.Location = nil, jsonform.Plain(e.Location)
	}
	return v, nil
}
