package app

import (
	"fmt"
	"log/slog"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
)

// Destinations returns the targets of push delivery.
func (c *Config) Destinations(log *slog.Logger) (push.Destinations, error) {
	targets, err := notify.ParseTargets(c.Subscriptions.Targets, c.Subscriptions.WebhookSecrets)
	if err != nil {
		return push.Destinations{}, cli.Usage(fmt.Errorf("subscriptions.targets: %w", err))
	}
	if _, taken := targets[LogTarget]; taken {
		return push.Destinations{}, cli.Usage(fmt.Errorf("subscriptions.targets: %s is the name of the log; use another name", LogTarget))
	}
	targets[LogTarget] = toLog(log)
	return push.Destinations{Targets: targets}, nil
}
