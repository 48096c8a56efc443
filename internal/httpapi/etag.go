package httpapi

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// ETag returns the strong entity tag of a version.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

const (
	// matchForm is the pattern of If-Match and of If-None-Match: RFC 9110, sections 13.1.1 and 13.1.2.
	matchForm = `^(\*|(W/)?"[!#-~]*"([ \t]*,[ \t]*(W/)?"[!#-~]*")*)$`
	// maxMatch bounds their length.
	maxMatch = 512
	// ProblemMatch is the problem of other values.
	ProblemMatch = `must be * or ETags with their quotes, such as "3"`
)

var ofMatchForm, oneTag = regexp.MustCompile(matchForm), regexp.MustCompile(`(W/)?"[^"]*"`)

// Match is the condition of If-Match or If-None-Match.
type Match struct {
	any  bool
	tags []string
}

// ParseMatch parses a header; an empty one is the same as "*".
func ParseMatch(header string) (m Match, ok bool) {
	header = strings.Trim(header, " \t")
	if header == "" || header == "*" {
		return Match{any: true}, true
	}
	if len(header) > maxMatch || !ofMatchForm.MatchString(header) {
		return Match{}, false
	}
	return Match{tags: oneTag.FindAllString(header, -1)}, true
}

// Versions returns the versions that If-Match permits, nil for any. Weak tags match none, nor do
// tags that ETag does not return.
func (m Match) Versions() []int64 {
	if m.any {
		return nil
	}
	versions := []int64{}
	for _, tag := range m.tags {
		if v, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64); err == nil && v > 0 && ETag(v) == tag {
			versions = append(versions, v)
		}
	}
	return versions
}

// Permits reports whether If-Match permits to change what has a version.
func (m Match) Permits(version int64) bool { return m.any || slices.Contains(m.tags, ETag(version)) }

// Has reports whether If-None-Match has an ETag, by the weak comparison.
func (m Match) Has(etag string) bool {
	return m.any || slices.ContainsFunc(m.tags, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == etag })
}

// Precondition is the header If-Match of a change, to be embedded in the input of its operation.
type Precondition struct {
	IfMatch string `header:"If-Match" doc:"ETags of the versions to change, or *; if it has another version, the request fails with 412"`
}

// Resolve joins the lines of the header.
func (p *Precondition) Resolve(ctx huma.Context) []error {
	p.IfMatch = joinHeader(ctx, "If-Match")
	return nil
}

// joinHeader returns the lines of a header as one.
func joinHeader(ctx huma.Context, name string) string {
	var lines []string
	ctx.EachHeader(func(n, value string) {
		if strings.EqualFold(n, name) {
			lines = append(lines, value)
		}
	})
	return strings.Join(lines, ", ")
}

// Creation is Precondition for a change that may create, with If-None-Match.
type Creation struct {
	Precondition
	IfNoneMatch string `header:"If-None-Match" doc:"* refuses with 412 to replace what exists, ETags to replace their versions"`
}

// Resolve joins the lines of each header.
func (c *Creation) Resolve(ctx huma.Context) []error {
	c.IfNoneMatch = joinHeader(ctx, "If-None-Match")
	return c.Precondition.Resolve(ctx)
}

// NotModified answers a read with 304 if the client has the response: its ETag is one of
// If-None-Match.
func NotModified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tags := strings.Join(r.Header.Values("If-None-Match"), ",")
		if has, ok := ParseMatch(tags); ok && tags != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w = &conditionalWriter{ResponseWriter: w, client: has}
		}
		next.ServeHTTP(w, r)
	})
}

// conditionalWriter drops the body of a response that the client has.
type conditionalWriter struct {
	http.ResponseWriter
	client      Match
	begun, same bool
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *conditionalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *conditionalWriter) WriteHeader(status int) {
	w.begun = true
	if etag := w.Header().Get("ETag"); status == http.StatusOK && etag != "" && w.client.Has(etag) {
		w.same, status = true, http.StatusNotModified
		w.Header().Del("Content-Type")
		w.Header().Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *conditionalWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.same {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
