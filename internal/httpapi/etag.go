package httpapi

import (
	"net/http"
	"strconv"
	"strings"
)

// ETag returns the strong entity tag of a version.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// ParseIfMatch returns the version in a header If-Match with one tag: 0, which is any, for an
// empty header and for "*".
func ParseIfMatch(header string) (version int64, ok bool) {
	if header == "" || header == "*" {
		return 0, true
	}
	version, err := strconv.ParseInt(strings.Trim(header, `"`), 10, 64)
	return version, err == nil && version > 0 && ETag(version) == header
}

// NotModified answers a read with 304 if the client has the response: its ETag is one of
// If-None-Match.
func NotModified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tags := strings.Join(r.Header.Values("If-None-Match"), ",")
		if tags != "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			w = &conditionalWriter{ResponseWriter: w, tags: tags}
		}
		next.ServeHTTP(w, r)
	})
}

// conditionalWriter drops the body of a response that the client has.
type conditionalWriter struct {
	http.ResponseWriter
	tags        string
	begun, same bool
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *conditionalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *conditionalWriter) WriteHeader(status int) {
	w.begun = true
	if status == http.StatusOK && w.has(w.Header().Get("ETag")) {
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

// has compares weakly, as RFC 9110 requires of If-None-Match. Tags of versions have no comma.
func (w *conditionalWriter) has(etag string) bool {
	if etag == "" {
		return false
	}
	for tag := range strings.SplitSeq(w.tags, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
