package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// verify is interrupted, as by Ctrl-C, and goes on from its file.
func TestVerify_GoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	const n = 600
	c.load(n)
	if r := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...).Wait(30 * time.Second); !r.OK() {
		t.Fatal(r)
	}
	state := filepath.Join(t.TempDir(), "state")
	args := []string{
		"verify", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr,
		"--until", "0s", "--rate", "100", "--resume", state, "-o", "json",
	}
	p := harness.Start(t, "verify", args...)
	time.Sleep(2500 * time.Millisecond) // of at least five seconds
	p.Signal(syscall.SIGINT)
	if code := p.Wait(10 * time.Second); code != 1 || !strings.Contains(p.Log(), "hint: the same command goes on from "+state) {
		t.Fatalf("status %d\n%s", code, p.Log())
	}
	var got struct {
		Rows      int  `json:"rows"`
		Published int  `json:"published"`
		OK        bool `json:"ok"`
		Resumed   bool `json:"resumed"`
	}
	out, stderr, code := harness.Run(t, time.Minute, args...)
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("status %d, %v\n%s%s", code, err, out, stderr)
	}
	if !got.OK || !got.Resumed || got.Rows != n || got.Published != n {
		t.Errorf("%+v, want %d events in their topics, resumed", got, n)
	}
}
