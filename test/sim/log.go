package sim

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// forgotten begins the message of a start that found more published events than it
// remembers.
const forgotten = "more events were published since the last checkpoint than the dedup index holds"

// unacknowledged begins the message of a relay that ends, or starts again in its process,
// while records are with the producer. A broker that holds them back appends them later.
const unacknowledged = "stopping with unacknowledged events"

// restarting begins the messages of a relay that starts again in its process. That is a start
// like any other: what it may not read back, it publishes again.
const restarting = "restarting to "

// logWatcher is a log that also sets forgot of the world at messages after which events
// may be published again, and records when relays start again in their processes.
type logWatcher struct {
	slog.Handler
	world *world
}

// Enabled implements slog.Handler.
func (h *logWatcher) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *logWatcher) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, forgotten) || strings.HasPrefix(r.Message, unacknowledged) && h.world.kafka.holdsBack() {
		h.world.forgot.Store(true)
	}
	if strings.HasPrefix(r.Message, restarting) {
		h.world.restarts.Lock()
		h.world.restarts.at = append(h.world.restarts.at, time.Now())
		h.world.restarts.Unlock()
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
