package relay

import (
	"math/rand/v2"
	"time"
)

// backoff is the wait before the attempt after the given one: from lo it
// doubles up to hi, with a jitter of ±20 % so that many do not come at once.
func backoff(lo, hi time.Duration, attempt int) time.Duration {
	d := lo
	for i := 1; i < attempt && d < hi; i++ {
		d *= 2
	}
	d = min(d, hi)
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// retryWait is the wait before the attempt after the given number of them.
func (c *Config) retryWait(attempts int) time.Duration {
	d := c.RetryDelays[min(attempts, len(c.RetryDelays)-1)]
	return time.Duration(float64(d) * (1 + max(c.RetryJitter, 0)*(2*rand.Float64()-1)))
}

// askAgain is the wait before the database or the broker is asked once more for
// what the relay cannot go on without.
func (c *Config) askAgain(attempt int) time.Duration {
	return backoff(c.RetryMin, min(c.RetryMax, 5*time.Second), attempt)
}
