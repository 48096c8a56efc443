//go:build fault

package fault

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// Consumers in Go and in Python process the sample orders exactly alike while the processes
// that own their partitions, and the one that forwards their requests, are killed ten times.
func TestFault_SubscriptionOwnersKilled(t *testing.T) {
	t.Parallel()
	addrs := harness.FreeAddrs(t, 2)
	harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--tokens", "4")
	harness.Reachable(t, addrs[0])
	harness.Reachable(t, addrs[1])
	killOwners(t, addrs[0], addrs[1])
}
