package relay

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// askAgain returns the delay before the retry of a request to the database or the broker
// that the relay cannot continue without.
func (c *Config) askAgain(attempt int) time.Duration {
	return retry.Backoff(c.RetryMin, min(c.RetryMax, 5*time.Second), attempt)
}
