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
	messages, bytes float64 // per second; 0 for no bound
	minBytes        int

	mu      sync.Mutex
	clients map[string]*quota
}

type quota struct{ messages, bytes *rate.Limiter }

func newQuotas(c *Config) *quotas {
	return &quotas{
		messages: c.MessagesPerSecond, bytes: c.BytesPerSecond, minBytes: int(c.MaxBatchBytes),
		clients: make(map[string]*quota),
	}
}

// take takes the messages and bytes from the quota of a client, or nothing and
// returns a *QuotaError.
func (q *quotas) take(client string, messages, bytes int, now time.Time) error {
	if q.messages == 0 && q.bytes == 0 {
		return nil
	}
	if address, ok := strings.CutPrefix(client, addressClient); ok { // of IPv6 a caller has as many as it likes
		client = addressClient + access.Network(address)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.clients[client]
	if c == nil {
		if len(q.clients) >= maxClients {
			for other := range q.clients {
				delete(q.clients, other)
				break
			}
		}
		c = &quota{limiter(q.messages, MaxBatch), limiter(q.bytes, q.minBytes)}
		q.clients[client] = c
	}
	one := c.messages.ReserveN(now, messages)
	two := c.bytes.ReserveN(now, bytes)
	if !one.OK() || !two.OK() {
		one.CancelAt(now)
		two.CancelAt(now)
		return &QuotaError{}
	}
	if wait := max(one.DelayFrom(now), two.DelayFrom(now)); wait > 0 {
		one.CancelAt(now)
		two.CancelAt(now)
		return &QuotaError{RetryAfter: wait}
	}
	return nil
}

// limiter allows a burst of one second, or of one maximum request.
func limiter(perSecond float64, least int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(int(2*perSecond), least))
}
