package stream

import (
	"bufio"
	"net"
	"net/http"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// refusal converts the plain-text errors of the WebSocket library to problem documents.
type refusal struct {
	http.ResponseWriter
	status int // of an error; 0 for none
}

// WriteHeader implements http.ResponseWriter.
func (r *refusal) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		r.status = status // Write receives the text
		return
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *refusal) Write(b []byte) (int, error) {
	if r.status == 0 {
		return r.ResponseWriter.Write(b)
	}
	httpapi.Write(r.ResponseWriter, newProblem(ofHandshake(r.status), strings.TrimSpace(string(b))+"."))
	return len(b), nil
}

// Hijack implements http.Hijacker.
func (r *refusal) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(r.ResponseWriter).Hijack()
}
