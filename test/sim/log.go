package sim

import (
	"context"
	"log/slog"
	"strings"
)

// forgotten begins the message of a start that found more published events than it
// remembers.
const forgotten = "more events were published since the last checkpoint than the dedup index holds"

// unacknowledged begins the message of a relay that ends, or starts again in its process,
// while records are with the producer. A broker that holds them back appends them later.
const unacknowledged = "stopping with unacknowledged events"

// logWatcher is a log that also sets forgot of the world at messages after which events
// may be published again.
type logWatcher struct {
	slog.Handler
	world *world
}

// Enabled implements slog.Handler.
func (h *logWatcher) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *logWatcher) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, forgotten) || strings.HasPrefix(r.Message, unacknowledged) && h.world.kafka.holdsBack() {
		h.world.forgot.Store(true)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logWatcher) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logWatcher{h.Handler.WithAttrs(attrs), h.world}
}

// WithGroup implements slog.Handler.
func (h *logWatcher) WithGroup(name string) slog.Handler {
	return &logWatcher{h.Handler.WithGroup(name), h.world}
}
