package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// LogTarget is the name of the target that writes messages to the log. It always exists.
const LogTarget = "log"

// Destinations returns the targets of push delivery.
func (c *Config) Destinations(log *slog.Logger) (plugin.Destinations, error) {
	targets, err := notify.ParseTargets(c.Subscriptions.Targets, c.Subscriptions.WebhookSecrets)
	if err != nil {
		return plugin.Destinations{}, cli.Usage(fmt.Errorf("subscriptions.targets: %w", err))
	}
	if _, taken := targets[LogTarget]; taken {
		return plugin.Destinations{}, cli.Usage(fmt.Errorf("subscriptions.targets: %s is the name of the log; use another name", LogTarget))
	}
	targets[LogTarget] = toLog(log)
	return plugin.Destinations{Targets: targets}, nil
}

// toLog returns the target that writes messages to the log.
func toLog(log *slog.Logger) notify.Target {
	return notify.TargetFunc(func(ctx context.Context, m notify.Message) error {
		level := slog.LevelInfo
		switch m.Severity {
		case notify.Warning:
			level = slog.LevelWarn
		case notify.Critical:
			level = slog.LevelError
		}
		log.Log(ctx, level, m.Title, "type", m.Type, "delivery", m.ID, "text", m.Text)
		return nil
	})
}
