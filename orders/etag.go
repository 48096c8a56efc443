package orders

import (
	"strconv"
	"strings"
)

// etag is the strong entity tag of a version.
func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// maxTags bounds the tags of an If-Match.
const maxTags = 32

// parseIfMatch returns the versions that an If-Match (RFC 9110, 13.1.1) names, nil
// for none and for "*", which every order fulfils that is there. A tag that this
// service never gave, and a weak one, matches nothing.
func parseIfMatch(header string) ([]int64, error) {
	rest := strings.TrimSpace(header)
	if rest == "" || rest == "*" {
		return nil, nil
	}
	versions := []int64{}
	for n := 0; ; n++ {
		weak := strings.HasPrefix(rest, "W/")
		rest = strings.TrimPrefix(rest, "W/")
		if n == maxTags || !strings.HasPrefix(rest, `"`) {
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
	return &InvalidError{Fields: []FieldError{{Field: "header.If-Match", Problem: `must be * or an ETag as the order has it, such as "3"`}}}
}
