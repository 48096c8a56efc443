package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
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
		{"sustained --rate 0", "--rate 0"},
		{"sustained --rate 10 --write-batch 11", "--write-batch 11"},
		{"sustained --payload 10000 --write-batch 91", "--write-batch 91"},
		{"sustained --processes 3 --shards 2", "--shards 2"},
		{"sustained --duration 1ms --processes 0", "--processes 0"},
		{"--scylla-hosts 127.0.0.1:1", "--kafka-seeds belong together"},
	}
	for _, tt := range tests {
		var out, errOut bytes.Buffer
		if code := run(append([]string{"bench"}, strings.Fields(tt.args)...), &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("bench %s: exit status %d, %q, want %d naming %s", tt.args, code, errOut.String(), cli.ExitUsage, tt.want)
		}
	}
}
