package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// NewLogger makes a logger that writes to w. level is debug, info, warn or error;
// format is text or json. Lines logged with a request's context contain the ids of the
// request and of its trace. In JSON a duration is a number of seconds, and its key ends in
// _seconds.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch strings.ToLower(format) {
	case "text":
		return slog.New(trace.Handler(slog.NewTextHandler(w, opts))), nil
	case "json":
		opts.ReplaceAttr = inSeconds
		return slog.New(trace.Handler(slog.NewJSONHandler(w, opts))), nil
	}
	return nil, fmt.Errorf("log format %q: use text or json", format)
}

// inSeconds names the unit of a duration, which slog writes as a number of nanoseconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
}
