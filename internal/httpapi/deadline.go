package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// readInTime has the deadlines for reading a request, the server's and the one that
// huma sets for a body, end with the body. They would go on while the request is
// served: net/http reads ahead to hear of a caller who hangs up, takes the deadline
// for that, and ends the context of the request and of all that come after it on the
// same connection, which goes on nevertheless.
//
// It passes on a copy of the request: net/http reads what is left of a body that is
// not its own before it answers, so that a refusal after Expect: 100-continue would
// wait for a body that the client does not send.
func readInTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &timedBody{ReadCloser: r.Body, w: w}
		if r.Body == http.NoBody {
			b.read()
		}
		timed := *r
		timed.Body = b
		next.ServeHTTP(w, &timed)
	})
}

// timedBody is a request's body.
type timedBody struct {
	io.ReadCloser
	w http.ResponseWriter
}

// Read lifts the deadline at the end of the body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.read()
	}
	return n, err
}

func (b *timedBody) read() {
	_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{}) // without deadlines there is none to lift
}
