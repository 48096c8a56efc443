package trace

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A line that is logged with a request's context contains the ids of the request and
// its trace, also through With and groups. A line without a request contains neither.
func TestHandler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, nil))).With("relay", "outbox")
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		want   []string
		absent []string
	}{
		{"both", With(t.Context(), "r-1", parent), []string{"relay=outbox", "request_id=r-1", "trace_id=0af7651916cd43dd8448eb211c80319c"}, nil},
		{"a malformed traceparent", With(t.Context(), "r-2", "00-0-0-01"), []string{"request_id=r-2"}, []string{"trace_id"}},
		{"no request", t.Context(), []string{"relay=outbox"}, []string{"request_id", "trace_id"}},
	} {
		out.Reset()
		log.InfoContext(tt.ctx, "done")
		for _, w := range tt.want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: the line is %q, want %s in it", tt.name, out.String(), w)
			}
		}
		for _, w := range tt.absent {
			if strings.Contains(out.String(), w) {
				t.Errorf("%s: the line is %q, want no %s", tt.name, out.String(), w)
			}
		}
	}
}

func TestAttrs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.Info("event", Attrs(map[string]string{outbox.HeaderRequestID: "r-1", outbox.HeaderTraceParent: parent}))
	if s := out.String(); !strings.Contains(s, " request_id=r-1 trace_id=0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("the line is %q, want the request and the trace", s)
	}
	out.Reset()
	log.Info("event", Attrs(nil), "seq", 1)
	if s := out.String(); !strings.HasSuffix(s, "msg=event seq=1\n") {
		t.Errorf("the line of an event without headers is %q", s)
	}
}
