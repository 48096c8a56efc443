package httpapi

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// BeginEvents begins a response of server-sent events. write sends a part of it, within limit. ok is
// false for a HEAD request, which has no body: its client would never disconnect.
func BeginEvents(ctx huma.Context, limit time.Duration) (write func([]byte) error, ok bool) {
	r, w := humago.Unwrap(ctx)
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // or a proxy keeps events back
	ctx.SetStatus(http.StatusOK)
	return func(b []byte) error {
		_ = out.SetWriteDeadline(time.Now().Add(limit)) // only writers of tests have no deadlines
		_, err := w.Write(b)
		if err == nil {
			err = out.Flush()
		}
		// HTTP/2 ends a stream at the deadline even if nothing is being written.
		_ = out.SetWriteDeadline(time.Time{})
		return err
	}, r.Method != http.MethodHead
}
