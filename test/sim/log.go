package sim

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
)

// forgotten begins the message of a start that found more published events than it
// remembers.
const forgotten = "more was published since the last checkpoint than is remembered"

// logWatcher is a log that also sets forgot at the message forgotten.
type logWatcher struct {
	slog.Handler
	forgot *atomic.Bool
}

// Enabled implements slog.Handler.
func (h *logWatcher) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *logWatcher) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, forgotten) {
		h.forgot.Store(true)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logWatcher) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logWatcher{h.Handler.WithAttrs(attrs), h.forgot}
}

// WithGroup implements slog.Handler.
func (h *logWatcher) WithGroup(name string) slog.Handler {
	return &logWatcher{h.Handler.WithGroup(name), h.forgot}
}
