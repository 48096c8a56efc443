package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

func TestBench_NamesEveryBadFlag(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, want string }{
		{"--rate 0", "--rate 0"},
		{"--rate 0 --payload 1 --runs 0", "--payload 1"},
		{"--duration -1s", "--duration -1s"},
		{"--restart --duration 0", "--restart needs"},
		{"--peers best", `--peers "best"`},
		{"-o xml", `--output "xml"`},
		{"orders --concurrency 0 --calm 0", "--calm 0"},
		{"messages --runs 0", "--runs 0"},
		{"--scylla-hosts 127.0.0.1:1", "--kafka-seeds go together"},
	}
	for _, tt := range tests {
		var out, errOut bytes.Buffer
		if code := run(append([]string{"bench"}, strings.Fields(tt.args)...), &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("bench %s: exit status %d, %q, want %d naming %s", tt.args, code, errOut.String(), exitUsage, tt.want)
		}
	}
}

// The limit must not make the relay collect garbage for ever where its settings
// let it keep more.
func TestRelayMemory_FollowsTheSettings(t *testing.T) {
	t.Parallel()
	c := relayConfig{MaxInFlightBytes: relay.DefaultMaxInFlightBytes, MaxRemembered: relay.DefaultMaxRememberedEvents}
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with the defaults, want %d", got, int64(relayMemory))
	}
	c.MaxInFlightBytes += 1000
	c.MaxRemembered += 10
	if got := c.memoryLimit(); got != relayMemory+2*1000+100*10 {
		t.Errorf("memoryLimit() = %d, want room for what the settings allow", got)
	}
	c.MaxInFlightBytes, c.MaxRemembered = 1, 1
	if got := c.memoryLimit(); got != relayMemory {
		t.Errorf("memoryLimit() = %d with less than the defaults, want %d", got, int64(relayMemory))
	}
}
