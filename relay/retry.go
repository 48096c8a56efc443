package relay

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// askAgain is the wait before the database or the broker is asked once more for
// what the relay cannot go on without.
func (c *Config) askAgain(attempt int) time.Duration {
	return retry.Backoff(c.RetryMin, min(c.RetryMax, 5*time.Second), attempt)
}
