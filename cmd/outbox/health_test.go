package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// outbox health asks the listener of its process, which may listen on all addresses, and
// reports why the process is not ready.
func TestHealth(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, `{"problems":["waiting for ScyllaDB"]}`)
	}))
	defer srv.Close()
	_, port, _ := strings.Cut(srv.Listener.Addr().String(), ":")
	config := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(config, []byte("ops: {addr: '0.0.0.0:"+port+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	health := func(command string) (int, string) {
		var out, errOut strings.Builder
		code := run(append([]string{"health", "--config", config}, strings.Fields(command)...), &out, &errOut)
		return code, errOut.String()
	}
	if code, text := health("subscriptions"); code != cli.ExitOK || text != "" {
		t.Errorf("of a ready process: exit status %d, %q", code, text)
	}
	status = http.StatusServiceUnavailable
	if code, text := health("relay"); code != cli.ExitFailed || !strings.Contains(text, "503") || !strings.Contains(text, "waiting for ScyllaDB") {
		t.Errorf("of a process that is not ready: exit status %d, %q", code, text)
	}
	srv.Close()
	if code, text := health("orders"); code != cli.ExitFailed || !strings.Contains(text, "hint: ops.addr") {
		t.Errorf("without a process: exit status %d, %q", code, text)
	}
	if code, text := health("tail"); code != cli.ExitUsage || !strings.Contains(text, "no ops listener") {
		t.Errorf("of a command without a listener: exit status %d, %q", code, text)
	}
	if err := os.WriteFile(config, []byte("ops: {addr: 'off'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := health("relay"); code != cli.ExitUsage || !strings.Contains(text, "ops.addr") {
		t.Errorf("with the listener off: exit status %d, %q", code, text)
	}
}

// Every daemon is started by one word after outbox, so that units, charts and health checks
// name it alike, and has a port of its own for its metrics.
func TestDaemons_StartAlike(t *testing.T) {
	t.Parallel()
	var names []string
	eachCommand(func(name string, cmd *cobra.Command) {
		if cmd.Flags().Lookup(app.FlagOpsAddr) != nil && !cmd.Hidden {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(app.OpsAddrs)); !slices.Equal(names, want) {
		t.Errorf("the daemons are %q, and %q have an address for their metrics", names, want)
	}
}
