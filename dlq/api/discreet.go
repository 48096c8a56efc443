package api

import (
	"regexp"

	"github.com/danielgtaylor/huma/v2"
)

// plainName is the beginning of a location that may be told: the names of fields as
// this API has them. What a caller called a member that is none of these is cut off.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{0,100}`)

// withoutValues takes what the caller sent out of errors, where huma repeats it: it
// may be a secret in the wrong place, or a script. The field's name and what is wrong
// with it are left.
func withoutValues(_ huma.Context, _ string, v any) (any, error) {
	var all []*huma.ErrorDetail
	switch p := v.(type) {
	case *huma.ErrorModel:
		all = p.Errors
	case interface{ Details() []*huma.ErrorDetail }:
		all = p.Details()
	}
	for _, e := range all {
		e.Value = nil
		if name := plainName.FindString(e.Location); name != e.Location {
			e.Location = name + "…"
		}
	}
	return v, nil
}
