//go:build fault

package fault

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/chaos"
	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// Each process is killed many times during a load: the embedded database with
// the broker, the order service, the relay.
func TestFault_ProcessesKilledDuringALoad(t *testing.T) {
	t.Parallel()
	killAll(t, 120*kills(t), 0)
}

// The same with a relay that starts after a part of the load, and scans the table for it, as long
// as the kills take.
func TestFault_ProcessesKilledDuringABackfill(t *testing.T) {
	t.Parallel()
	n := kills(t)
	killAll(t, 180*n, 90*n, "--backfill-from", "2000-01-01T00:00:00Z", "--relay-backfill-rows-per-second", "120")
}

// killAll kills processes during a load; the relay starts when stored lines are
// stored.
func killAll(t *testing.T, lines, stored int, relayArgs ...string) {
	t.Helper()
	addrs := harness.FreeAddrs(t, 5)
	s := &storm{cql: addrs[0], kafka: addrs[1], api: addrs[2], admin: addrs[4], lines: lines, rate: 150}
	engines := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", s.cql, "--kafka-addr", s.kafka, "--tokens", "16")
	orders := startOrders(t, s.cql, s.api, s.admin)
	if stored > 0 { // a first start with a young table needs no scan
		first := startRelay(t, s.cql, s.kafka, addrs[3])
		harness.Ready(t, addrs[3])
		first.Stop()
	}
	var relay *harness.Process
	s.begun = func() { // the load
		harness.Until(t, "the first half of the load", func() bool { return harness.Answered(s.admin) >= stored })
		relay = startRelay(t, s.cql, s.kafka, addrs[3], relayArgs...)
		if stored > 0 {
			harness.Until(t, "a scan of the outbox table", func() bool { return strings.Contains(relay.Log(), "scanning the outbox table for events") })
			relay.Kill()
			relay.Restart()
		}
		s.victims = append(s.victims, process("relay", relay, 1))
	}
	s.victims = []*chaos.Victim{process("fake", engines, 1), process("orders", orders, 1)}
	s.run(t)
	if stored > 0 && !strings.Contains(relay.Log(), "resuming a scan of the outbox table") {
		t.Error("the relay did not resume its scan")
	}
	relay.Stop()
	orders.Stop()
	engines.Stop()
}
