package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// verify is interrupted, as by Ctrl-C, and resumes from its file.
func TestVerify_ResumesAfterAnInterruption(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	const n = 600
	c.load(n)
	if r := harness.NewAccount(t, c.cqlAddr, c.kafkaAddr, topics...).Wait(); !r.OK() {
		t.Fatal(r)
	}
	state := filepath.Join(t.TempDir(), "state")
	args := []string{
		"verify", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr,
		"--until", "0s", "--resume", state, "-o", "json",
	}
	p := harness.Start(t, "verify", append(args, "--rate", "1")...) // at this rate it takes ten minutes
	grown := func(from int64) int64 {
		t.Helper()
		var size int64
		harness.Until(t, "a state file that grows", func() bool {
			f, err := os.Stat(state)
			if err == nil {
				size = f.Size()
			}
			return size > from
		})
		return size
	}
	grown(grown(0)) // the file contains its target and its first progress
	p.Signal(syscall.SIGINT)
	if code := p.Wait(); code != 1 || !strings.Contains(p.Log(), "hint: the same command continues from "+state) {
		t.Fatalf("status %d\n%s", code, p.Log())
	}
	var got struct {
		Rows      int  `json:"rows"`
		Published int  `json:"published"`
		OK        bool `json:"ok"`
		Resumed   bool `json:"resumed"`
	}
	out, stderr, code := harness.Run(t, append(args, "--rate", "0")...)
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("status %d, %v\n%s%s", code, err, out, stderr)
	}
	if !got.OK || !got.Resumed || got.Rows != n || got.Published != n {
		t.Errorf("%+v, want %d events in their topics, resumed", got, n)
	}
}
