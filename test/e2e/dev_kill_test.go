package e2e

import (
	"path/filepath"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// dev is killed three times during its load, the engines with the relay.
// Earlier events are read back from the topics and not published again.
func TestDev_IsKilledDuringItsLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	addrs := harness.FreeAddrs(t, 5)
	d := harness.Start(t, "dev", "run", "--data-dir", dir, "--cql-addr", addrs[0], "--kafka-addr", addrs[1], "--orders-addr", addrs[2], "--admin-addr", addrs[3], "--messages-addr", "127.0.0.1:0", "--subscriptions-addr", "127.0.0.1:0", "--ops-addr", addrs[4])
	for i := range 3 {
		if i > 0 {
			d.Restart()
		}
		harness.Until(t, "answers to the load", func() bool { return harness.Answered(addrs[4]) >= 300*(i+1) })
		d.Kill()
	}
	r, stderr, code := once(t, dir)
	if code != 0 || r.Lost != 0 || r.Duplicates != 0 || r.OutOfOrder != 0 {
		t.Errorf("status %d, %+v, want every event in the topics, each once and in order\n%s", code, r, stderr)
	}
	if r.Written <= 9878 {
		t.Errorf("%d events in all: none are from before the last run", r.Written)
	}
}
