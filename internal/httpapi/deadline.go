package httpapi

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// readInTime lifts the read deadlines of a request, the server's and that of huma for a
// body, at the end of the body. Otherwise they stay active while the request is served:
// net/http reads ahead to detect a closed connection, mistakes the deadline for one, and
// cancels the context of the request and of all later ones on the same connection, which
// stays open.
//
// It passes a copy of the request: net/http reads the rest of a body that is not its own
// before it responds, so that a refusal after Expect: 100-continue would wait for a body
// that the client does not send.
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

// timedBody is a request body that lifts the deadline at its end.
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
	_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{}) // ignored by writers without deadlines
}
