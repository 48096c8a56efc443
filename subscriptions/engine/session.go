package engine

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// session knows until when the coordinator cannot have given the partitions of this
// instance to another one. A process that was stopped for longer leases nothing: the
// next owner may have delivered its messages.
//
// A heartbeat is proof of the session at the time at which it was sent, once the next
// one was answered, too: the client sends no other after an error.
type session struct {
	ready chan struct{}
	mu    struct {
		sync.Mutex
		proven, sent, joined time.Time
	}
}

var _ kgo.HookBrokerE2E = (*session)(nil)

// OnBrokerE2E records heartbeats and the end of a rebalance.
func (s *session) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.WriteErr != nil || e2e.ReadErr != nil {
		return
	}
	sent := time.Now().Add(-e2e.DurationE2E())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kmsg.Key(key) {
	case kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat:
		s.mu.proven, s.mu.sent = s.mu.sent, sent
	case kmsg.SyncGroup:
		s.mu.joined = sent
	}
}

// begin is called when the group has assigned partitions.
func (s *session) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.joined.After(s.mu.proven) {
		s.mu.proven, s.mu.sent = s.mu.joined, s.mu.joined
	}
}

// valid reports whether this instance may lease.
func (s *session) valid(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.mu.proven) < sessionTimeout
}
