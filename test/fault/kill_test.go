//go:build fault

package fault

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// Each process is killed many times during a load: the embedded database with
// the broker, the order service, the relay.
func TestFault_ProcessesKilledDuringALoad(t *testing.T) {
	addrs := harness.FreeAddrs(t, 4)
	s := &storm{cql: addrs[0], kafka: addrs[1], api: addrs[2], lines: 6000, rate: 150}
	engines := harness.Start(t, "fake", "fake", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--kafka-addr", s.kafka, "--tokens", "16")
	orders := startOrders(t, s.cql, s.api)
	relay := startRelay(t, s.cql, s.kafka, addrs[3])
	s.victims = []*victim{process("fake", engines, 1), process("orders", orders, 1), process("relay", relay, 1)}
	s.run(t, setting(t, "FAULT_SEED", uint64(time.Now().UnixNano())), int(setting(t, "FAULT_KILLS", defaultKills)))
	relay.Stop()
	orders.Stop()
	engines.Stop()
}
