package adminclient

import (
	"bytes"
	"io"
	"net/http"
)

// inProcess sends requests to a handler in this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI = r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close() //nolint:errcheck // it is in memory
	w := &response{header: make(http.Header), code: http.StatusOK}
	p.handler.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil && w.code >= http.StatusBadRequest {
		return nil, err // it is the cause
	}
	return &http.Response{
		StatusCode: w.code, Status: http.StatusText(w.code), Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// response is the response of a handler.
type response struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) { w.code = code }

// Write implements http.ResponseWriter.
func (w *response) Write(b []byte) (int, error) { return w.body.Write(b) }
