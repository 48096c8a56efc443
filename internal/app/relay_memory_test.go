package app

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The limit must not make the relay collect garbage for ever where its settings
// let it keep more.
func TestRelayMemory_FollowsTheSettings(t *testing.T) {
	t.Parallel()
	c := RelayConfig{MaxRememberedEvents: relay.DefaultMaxRememberedEvents}
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with the defaults, want %d", got, int64(relayMemory))
	}
	c.MaxRememberedEvents += 10
	if got := c.memoryLimit(); got != relayMemory+100*10 {
		t.Errorf("memoryLimit() = %d, want room for what the settings allow", got)
	}
	c.MaxRememberedEvents = 1
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with less than the defaults, want %d", got, int64(relayMemory))
	}
}
