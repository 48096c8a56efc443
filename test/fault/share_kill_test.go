//go:build fault

package fault

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// Instances that share a relay are killed and paused, and others take over.
func TestFault_RelaysThatShare(t *testing.T) {
	t.Parallel()
	addrs := harness.FreeAddrs(t, 7)
	s := &storm{cql: addrs[0], kafka: addrs[1], api: addrs[2], admin: addrs[3]}
	engines := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--kafka-addr", s.kafka, "--tokens", "16")
	shareAndDie(t, s, addrs[4:], 4)
	engines.Stop()
}
