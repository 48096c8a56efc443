package orders

import (
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// etag is the strong entity tag of a version.
func etag(version int64) string { return httpapi.ETag(version) }

// maxIfMatch bounds the length of If-Match, and ifMatchForm is its pattern.
const (
	maxIfMatch  = 512
	ifMatchForm = `^(\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$`
)

// parseIfMatch returns the versions in an If-Match header (RFC 9110, 13.1.1).
// It returns nil for an empty header and for "*", which every existing order
// matches. Weak tags, and tags that this service does not issue, match nothing.
func parseIfMatch(header string) ([]int64, error) {
	rest := strings.TrimSpace(header)
	if rest == "" || rest == "*" {
		return nil, nil
	}
	if len(header) > maxIfMatch {
		return nil, errIfMatch()
	}
	versions := []int64{}
	for {
		weak := strings.HasPrefix(rest, "W/")
		rest = strings.TrimPrefix(rest, "W/")
		if !strings.HasPrefix(rest, `"`) {
			return nil, errIfMatch()
		}
		tag, after, ok := strings.Cut(rest[1:], `"`)
		if !ok {
			return nil, errIfMatch()
		}
		if v, err := strconv.ParseInt(tag, 10, 64); err == nil && !weak && etag(v) == `"`+tag+`"` {
			versions = append(versions, v)
		}
		if rest = strings.TrimSpace(after); rest == "" {
			return versions, nil
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, errIfMatch()
		}
		rest = strings.TrimSpace(rest)
	}
}

func errIfMatch() error {
	return &InvalidError{Fields: []FieldError{{Field: "header.If-Match", Problem: `must be * or an ETag of the order, such as "3"`}}}
}
