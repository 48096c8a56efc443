package app

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The limit must not make the relay collect garbage for ever where its settings
// let it keep more.
func TestRelayMemory_FollowsTheSettings(t *testing.T) {
	t.Parallel()
	c := RelayConfig{DedupMemory: relay.DefaultDedupMemory, Shards: 1}
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with the defaults, want %d", got, int64(relayMemory))
	}
	c.DedupMemory += 1000
	if got := c.memoryLimit(); got != relayMemory+2*1000 {
		t.Errorf("memoryLimit() = %d, want room for what the settings allow", got)
	}
	c.Shards = 2
	if got := c.memoryLimit(); got != relayMemory+relay.DefaultDedupMemory+3*1000 {
		t.Errorf("memoryLimit() = %d with two shards, want room for a second index", got)
	}
	c.DedupMemory, c.Shards = 1, 1
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with less than the defaults, want %d", got, int64(relayMemory))
	}
}
