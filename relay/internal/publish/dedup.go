package publish

import (
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Indexed reports whether the dedup index contains an event that is not in progress,
// and whether that event is known to be in its topic.
func (p *Publisher) Indexed(id gocql.UUID) (indexed, inTopic bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items[id] != nil {
		return false, false
	}
	out, in := p.dedup.Find(id)
	return out, bool(in)
}

// Forget removes an event from the dedup index.
func (p *Publisher) Forget(id gocql.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dedup.Forget(id)
}

// MemoryFull reports whether the tail reader has to wait for the sweep reader. It logs
// when the dedup index becomes nearly full and when it has room again.
func (p *Publisher) MemoryFull() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if near, changed := p.dedup.Near(); changed {
		events, limit, _ := p.dedup.Use()
		if near {
			p.log.Warn("dedup index is nearly full; at the limit the tail reader waits for the sweep reader: raise relay.max_remembered", "events", events, "limit", limit)
		} else {
			p.log.Info("dedup index has room again", "events", events, "limit", limit)
		}
	}
	return p.dedup.Full()
}

// MemoryUse returns the number of events that wait for the sweep reader, their limit,
// and whether the number is near the limit.
func (p *Publisher) MemoryUse() (events, limit int, near bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dedup.Use()
}

// Seed adds published events that were written before the given time.
func (p *Publisher) Seed(found *dedup.Found, before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dedup.Seed(found, before.UnixMicro(), time.Now())
}
