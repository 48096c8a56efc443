package messages

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// maxClients bounds the number of tracked clients. Beyond it, each new client
// evicts another, whose quota starts anew.
const maxClients = 10_000

// quotas tracks the quota of each client.
type quotas struct {
	perSecond float64 // messages; 0 for no bound

	mu struct {
		sync.Mutex
		clients map[string]*rate.Limiter
	}
}

func newQuotas(c *Config) *quotas {
	q := &quotas{perSecond: c.MessagesPerSecond}
	q.mu.clients = make(map[string]*rate.Limiter)
	return q
}

// take takes messages from the quota of a client, or nothing and returns a *QuotaError.
func (q *quotas) take(client string, messages int, now time.Time) error {
	if q.perSecond == 0 {
		return nil
	}
	if address, ok := strings.CutPrefix(client, addressClient); ok { // of IPv6 a caller has as many as it likes
		client = addressClient + access.Network(address)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.mu.clients[client]
	if c == nil {
		if len(q.mu.clients) >= maxClients {
			for other := range q.mu.clients {
				delete(q.mu.clients, other)
				break
			}
		}
		c = rate.NewLimiter(rate.Limit(q.perSecond), max(int(2*q.perSecond), MaxBatch))
		q.mu.clients[client] = c
	}
	r := c.ReserveN(now, messages)
	if !r.OK() {
		return &QuotaError{}
	}
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return &QuotaError{RetryAfter: wait}
	}
	return nil
}
