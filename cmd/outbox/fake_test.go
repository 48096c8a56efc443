package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// The embedded engines ask nobody for a password, so they listen beyond loopback only
// when told to.
func TestEngines_StayOnLoopback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		engines engines
		problem string
	}{
		"loopback":      {engines{cqlAddr: "127.0.0.1:0", kafkaAddr: "localhost:0"}, ""},
		"IPv6 loopback": {engines{cqlAddr: "[::1]:9042"}, ""},
		"everywhere":    {engines{cqlAddr: "0.0.0.0:9042"}, "--cql-addr"},
		"no host":       {engines{cqlAddr: ":9042"}, "--cql-addr"},
		"a name":        {engines{cqlAddr: "127.0.0.1:0", kafkaAddr: "example.com:9092"}, "--kafka-addr"},
		"allowed":       {engines{cqlAddr: "0.0.0.0:9042", kafkaAddr: "0.0.0.0:9092", allowRemote: true}, ""},
	} {
		err := tt.engines.checkAddrs()
		if (err == nil) != (tt.problem == "") || err != nil && !(strings.Contains(err.Error(), tt.problem) && strings.Contains(err.Error(), "--allow-remote")) {
			t.Errorf("%s: %v, want a problem of %q", name, err, tt.problem)
		}
	}
	e := engines{cqlAddr: "127.0.0.1:0", kafkaAddr: "0.0.0.0:0"}
	if err := e.start(&daemon.Teardown{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a broker started that everybody reaches")
	}
}

// What the engines keep is for the user who runs them alone.
func TestEngines_DataIsForOneUser(t *testing.T) {
	t.Parallel()
	e := engines{dir: filepath.Join(t.TempDir(), "data"), cqlAddr: "127.0.0.1:0", kafkaAddr: "127.0.0.1:0", tokens: 4}
	log := slog.New(slog.DiscardHandler)
	teardown := &daemon.Teardown{Logger: log}
	t.Cleanup(func() {
		if err := teardown.Run(); err != nil {
			t.Error(err)
		}
	})
	if err := e.start(teardown, log); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{e.dir, e.subdir("scylla"), e.subdir("kafka")} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v, want mode 0700", dir, info, err)
		}
	}
}
