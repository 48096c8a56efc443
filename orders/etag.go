package orders

import "github.com/scylla-outbox/scylla-outbox/internal/httpapi"

// etag is the strong entity tag of a version.
func etag(version int64) string { return httpapi.ETag(version) }

// parseIfMatch returns the versions in an If-Match header, nil for any.
func parseIfMatch(header string) ([]int64, error) {
	match, ok := httpapi.ParseMatch(header)
	if !ok {
		return nil, &InvalidError{Fields: []FieldError{{Field: "header.If-Match", Problem: httpapi.ProblemMatch}}}
	}
	return match.Versions(), nil
}
