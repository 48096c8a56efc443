package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// Discreet removes the values that callers sent from the problems of an API, because a
// value may be a misplaced secret or a script. The name of the field and the message are
// kept.
func Discreet(c *huma.Config) {
	c.Transformers = append(c.Transformers, withoutValues)
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
