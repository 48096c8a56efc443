package relay

import (
	"math/rand/v2"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// retryWait is the wait before the attempt after the given number of them.
func (c *Config) retryWait(attempts int) time.Duration {
	d := c.RetryDelays[min(attempts, len(c.RetryDelays)-1)]
	return time.Duration(float64(d) * (1 + max(c.RetryJitter, 0)*(2*rand.Float64()-1)))
}

// askAgain is the wait before the database or the broker is asked once more for
// what the relay cannot go on without.
func (c *Config) askAgain(attempt int) time.Duration {
	return retry.Backoff(c.RetryMin, min(c.RetryMax, 5*time.Second), attempt)
}
