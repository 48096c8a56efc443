package readback

import (
	"log/slog"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Config configures read-back and proofs. All fields are set; relay.Config
// documents those of the same name.
type Config struct {
	Source              string
	Topics              map[string]string
	FirstAge            time.Duration
	ReadBackMargin      time.Duration // negative: nothing is read back
	ReadBackQuiet       time.Duration
	MaxInFlightRecords  int
	MaxRememberedEvents int
	RetryMin, RetryMax  time.Duration
	Logger              *slog.Logger
}

// askAgain returns the wait before a retry of a request that a start depends on.
func (c *Config) askAgain(attempt int) time.Duration {
	return retry.Backoff(c.RetryMin, min(c.RetryMax, 5*time.Second), attempt)
}
