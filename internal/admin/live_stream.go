package admin

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// liveEndpoints serve the event stream of the console.
type liveEndpoints struct {
	*operations
	live *live
}

func (ep *liveEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "live", Method: http.MethodGet, Path: "/v1/live", Summary: "Stream changes",
		Description: "Server-sent events, once a second: status (as /v1/status), job (as /v1/jobs/{id}), " +
			"dead_letters {event_ids}, database {reachable}. The first status is sent immediately. dead_letters lists the changed dead letters among the latest 200 and " +
			"all that were changed through this server. A comment is sent every 15 s. A client that reads too slowly is disconnected, and a stream ends after an hour: reconnect then.",
		Responses: map[string]*huma.Response{"200": {
			Description: "A stream of server-sent events", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}},
	}), ep.stream)
}

func (ep *liveEndpoints) stream(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	one, err := ep.live.join(access.Holder(ctx, ""))
	if err != nil {
		p := newProblem(ctx, httpapi.TypeTooManyListeners, "There are too many listeners; retry later.")
		if errors.Is(err, errClosing) {
			p = newProblem(ctx, httpapi.TypeStopping, "The server is stopping.")
		}
		p.Header().Set("Retry-After", retryAfter)
		return nil, p
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer ep.live.leave(one, "the client disconnected")
		hctx.SetHeader("Content-Type", "text/event-stream")
		hctx.SetHeader("X-Accel-Buffering", "no") // or a proxy keeps events back
		if hctx.Method() == http.MethodHead {
			return // a HEAD request has no body, and its client would never disconnect
		}
		w, ok := hctx.BodyWriter().(http.ResponseWriter)
		if !ok {
			ep.log.Error("event stream without a connection")
			return
		}
		ep.pour(hctx.Context(), http.NewResponseController(w), w, one)
	}}, nil
}

// pour writes events until the stream ends.
func (ep *liveEndpoints) pour(ctx context.Context, c *http.ResponseController, w http.ResponseWriter, one *listener) {
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	end := time.NewTimer(liveLife)
	defer end.Stop()
	write := func(b []byte) bool {
		// A writer without deadlines, as in tests, returns an error.
		_ = c.SetWriteDeadline(time.Now().Add(liveWrite))
		_, err := w.Write(b)
		if err == nil {
			err = c.Flush()
		}
		// HTTP/2 ends a stream at the deadline even if nothing is being written.
		_ = c.SetWriteDeadline(time.Time{})
		return err == nil
	}
	if !write([]byte(": hello\n\n")) {
		return
	}
	for {
		select {
		case event, ok := <-one.events:
			if !ok {
				write([]byte(": " + one.why + "\n\n"))
				return
			}
			for more := true; more; { // what waits goes out in one write
				select {
				case next, open := <-one.events:
					if more = open; open {
						event = append(bytes.Clone(event), next...)
					}
				default:
					more = false
				}
			}
			if !write(event) {
				return
			}
		case <-beat.C:
			if !write([]byte(": heartbeat\n\n")) {
				return
			}
		case <-end.C:
			write([]byte(": reconnect\n\n"))
			return
		case <-ctx.Done():
			return
		}
	}
}
