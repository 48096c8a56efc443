// Package resttest has a transport for the tests of the clients of the HTTP APIs.
package resttest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Transport answers without a network, so that time can be virtual. Seen and Bodies are the
// requests, to be read when there are no more.
type Transport struct {
	// Answer answers the request with a number, from 1.
	Answer func(n int, r *http.Request) (*http.Response, error)
	Seen   []*http.Request
	Bodies []string
	mu     sync.Mutex
}

// RoundTrip implements http.RoundTripper.
func (s *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.Seen = append(s.Seen, r)
	s.Bodies = append(s.Bodies, string(b))
	n := len(s.Seen)
	s.mu.Unlock()
	return s.Answer(n, r)
}

// Respond returns a response; its headers are pairs.
func Respond(status int, body string, header ...string) (*http.Response, error) {
	w := httptest.NewRecorder()
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
	return w.Result(), nil
}
