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
		{"shapes --events 9 --restart-events 0", "--restart-events 0"},
		{"shapes --only nothing", `--only "nothing"`},
		{"shapes --aggregates 7 --only nothing", `"7 aggregates", "one aggregate", "one aggregate under load", "restart"`},
		{"--tablets 3", "--tablets 3"},
		{"streams --streams 0,2,3,257", "--streams 3:"},
		{"streams --streams 2,257", "--streams 257:"},
		{"latency-cost --intervals 1s,1us --tablets 3", "--tablets 3"},
		{"orders --only nothing", `--only "nothing"`},
		{"messages --only nothing", "offered"},
		{"", "--kafka-seeds belong together"},
	}
	for _, tt := range tests {
		var out, errOut bytes.Buffer
		// With a host alone no benchmark starts, although its flags are accepted.
		args := append([]string{"bench", "--scylla-hosts", "127.0.0.1:1"}, strings.Fields(tt.args)...)
		if code := run(args, &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("bench %s: exit status %d, %q, want %d naming %s", tt.args, code, errOut.String(), cli.ExitUsage, tt.want)
		}
	}
}
