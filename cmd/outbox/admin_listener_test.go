package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// listenerCommands are the commands with an ops listener: the flags of their APIs, a
// metric, and further arguments.
var listenerCommands = map[string]struct {
	apis   []string
	metric string
	more   []string
	kafka  bool // it connects to Kafka when it starts
}{
	"relay":         {metric: "outbox_relay_streams", kafka: true},
	"notifier":      {metric: "outbox_dead_letter_"},
	"orders":        {apis: []string{"--orders-addr"}, metric: "outbox_orders_unknown_outcomes_total"},
	"messages":      {apis: []string{"--messages-addr"}, metric: "outbox_messages_received_total"},
	"subscriptions": {apis: []string{"--subscriptions-addr"}, metric: `outbox_http_request_duration_seconds_count{api="subscriptions",code="200",operation="receive"}`},
	"admin":         {apis: []string{"--admin-addr"}, metric: "outbox_dead_letter_jobs", more: []string{"--config", "TOKENS"}},
}

// Every command serves health checks, metrics, and profiles if they are enabled, on its
// ops listener. An API has the same health checks, and neither metrics nor profiles. The
// listener answers only to allowed hosts.
func TestAdminListener_MetricsAreNowhereElse(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	found := 0
	eachCommand(func(name string, cmd *cobra.Command) {
		if cmd.Flags().Lookup(app.FlagOpsAddr) == nil || cmd.Hidden {
			return
		}
		found++
		x, ok := listenerCommands[name]
		if !ok {
			t.Errorf("outbox %s has an ops listener that this test does not know", name)
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := freeAddr(t)
			args := append(strings.Fields(name), "--ops-addr", admin)
			args = append(args, "--ops-profiles", "--http-hosts", "target.example", "--scylla-hosts", b.e.CQLAddr)
			if cmd.Flags().Lookup("kafka-seeds") != nil {
				args = append(args, "--kafka-seeds", b.e.KafkaAddr)
			}
			var apis []string
			for _, flag := range x.apis {
				apis = append(apis, freeAddr(t))
				args = append(args, flag, apis[len(apis)-1])
			}
			for _, arg := range x.more {
				if arg == "TOKENS" {
					_, arg = token(t, "operator")
				}
				args = append(args, arg)
			}
			running(t, args)
			until(t, admin, 200, "")
			if code, _, text := sendRequest(t, "GET", "http://"+admin+"/metrics", "", ""); code != 200 || !strings.Contains(text, "\n"+x.metric) {
				t.Errorf("/metrics at the ops listener = %d, want 200 and %s…", code, x.metric)
			}
			checkNames(t, "http://"+admin+"/metrics", name)
			for end := time.Now().Add(5 * time.Minute); x.kafka; time.Sleep(10 * time.Millisecond) {
				if _, _, text := sendRequest(t, "GET", "http://"+admin+"/metrics", "", ""); strings.Contains(text, "\noutbox_kafka_connects_total{node_id=") {
					break
				}
				if time.Now().After(end) {
					t.Fatal("/metrics has no connection of a Kafka client")
				}
			}
			for host, want := range map[string]int{"rebound.example": 403, "target.example:9090": 200, "localhost:9090": 200} {
				if code := askedAs(t, host, "http://"+admin+"/metrics"); code != want {
					t.Errorf("/metrics for the host %s = %d, want %d", host, code, want)
				}
			}
			for _, path := range []string{"/livez", "/readyz", "/debug/pprof/"} {
				if code, _, _ := sendRequest(t, "GET", "http://"+admin+path, "", ""); code != 200 {
					t.Errorf("%s at the ops listener = %d", path, code)
				}
			}
			for _, api := range apis {
				until(t, api, 200, "")
				if code, _, text := sendRequest(t, "GET", "http://"+api+"/livez", "", ""); code != 200 {
					t.Errorf("/livez at the API = %d %s", code, text)
				}
				for _, path := range []string{"/metrics", "/debug/pprof/"} {
					if code, _, text := sendRequest(t, "GET", "http://"+api+path, "", ""); code != 404 {
						t.Errorf("%s at the API = %d %.100s, want 404", path, code, text)
					}
				}
			}
		})
	})
	if found != len(listenerCommands) {
		t.Errorf("found %d commands, want %d", found, len(listenerCommands))
	}
}

// checkNames checks that each family of metrics has a prefix of observability.md and a help
// text, and that one has the command, on which alerts depend.
func checkNames(t *testing.T, url, command string) {
	t.Helper()
	_, _, text := sendRequest(t, "GET", url, "", "")
	families := regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1)
	if len(families) < 20 || !strings.Contains(text, "\noutbox_build_info{command=\""+command+"\",") {
		t.Errorf("/metrics has %d families, want at least 20, among them outbox_build_info of %s", len(families), command)
	}
	document, err := os.ReadFile("../../docs/operators/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`(?:outbox|go)_[^|]+) \\|").FindAllStringSubmatch(string(document), -1) {
		for _, prefix := range strings.Split(row[1], ", ") {
			known = append(known, strings.Trim(prefix, "`"))
		}
	}
	for _, f := range families {
		if !slices.ContainsFunc(known, func(prefix string) bool { return strings.HasPrefix(f[1], prefix) }) {
			t.Errorf("/metrics has %s, want one of the prefixes %q", f[1], known)
		}
		if !regexp.MustCompile(`(?m)^# HELP ` + f[1] + ` \S`).MatchString(text) {
			t.Errorf("/metrics has no help text of %s", f[1])
		}
	}
}

// eachCommand calls f with each command that can be run, and its name.
func eachCommand(f func(name string, cmd *cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Runnable() {
			f(strings.TrimPrefix(cmd.CommandPath(), "outbox "), cmd)
		}
	}
	walk(newRoot(io.Discard, io.Discard))
}

// running runs a command until the test ends.
func running(t *testing.T, args []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	root := newRoot(io.Discard, io.Discard)
	root.SetArgs(args)
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("outbox %s ended with %v", strings.Join(args, " "), err)
		}
	})
}

// askedAs is the status of the answer to a GET with another Host header.
func askedAs(t *testing.T, host, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// All commands can run on one host: no two ops listeners have the same default port, nor
// the default port of an API, the database or Kafka.
func TestAdminListener_DefaultPortsDiffer(t *testing.T) {
	t.Parallel()
	owners := make(map[string]string)
	add := func(owner, addr string) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host != "127.0.0.1" {
			t.Errorf("%s: the default is %s, want a port of loopback", owner, addr)
		}
		if other, ok := owners[port]; ok {
			t.Errorf("%s and %s have the default port %s", owner, other, port)
		}
		owners[port] = owner
	}
	add("--orders-addr", app.DefaultOrdersAddr)
	for _, s := range app.Settings {
		switch v := s.Value().(type) {
		case []string:
			if len(v) == 1 && strings.Contains(v[0], ":") {
				add(s.Key, v[0])
			}
		case string:
			if strings.HasSuffix(s.Key, "addr") && v != "" && s.Key != app.OpsAddrKey {
				add(s.Key, v)
			}
		}
	}
	eachCommand(func(name string, cmd *cobra.Command) {
		if f := cmd.Flags().Lookup(app.FlagOpsAddr); f != nil && !cmd.Hidden && !slices.Contains([]string{"fake", "dev"}, name) {
			add(name, f.DefValue)
			c, err := app.LoadConfigFrom("", app.NoEnv, cmd.Flags())
			if err != nil || c.Ops.Addr != f.DefValue {
				t.Errorf("%s listens on %s by default, want %s as in its help: %v", name, c.Ops.Addr, f.DefValue, err)
			}
		}
	})
	if len(owners) != 12 {
		t.Errorf("found %v, want 12 addresses", owners)
	}
}

// An address that is taken or wrong is reported with its setting, and off listens nowhere.
func TestAdminListener_AddressesThatDoNotWork(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	log := slog.New(slog.DiscardHandler)
	teardown := &daemon.Teardown{Logger: log}
	for _, x := range []struct {
		addr  string
		hosts []string
		want  string
		usage bool
	}{
		{taken.Addr().String(), nil, "ops.addr", false},
		{"", nil, "ops.addr", true},
		{"127.0.0.1", nil, "ops.addr", false},
		{"127.0.0.1:0", []string{"http://x"}, "http.hosts", true},
	} {
		c := &app.Config{Ops: app.OpsConfig{Addr: x.addr}}
		c.HTTP.Hosts = x.hosts
		_, err := app.ServeOps(t.Context(), c, app.NewRegistry(""), log, teardown)
		var usage cli.UsageError
		if err == nil || !strings.Contains(err.Error(), x.want) || errors.As(err, &usage) != x.usage {
			t.Errorf("ops.addr %q: %v, want %s named", x.addr, err, x.want)
		}
		if x.addr == taken.Addr().String() && !strings.Contains(cli.FindHint(err), "another process uses "+x.addr) {
			t.Errorf("the hint on a port that is taken is %q", cli.FindHint(err))
		}
	}
	c := &app.Config{Ops: app.OpsConfig{Addr: app.OpsOff}}
	if a, err := app.ServeOps(t.Context(), c, app.NewRegistry(""), log, teardown); err != nil || a.Server != nil || a.URL != "off" {
		t.Errorf("ops.addr off: %+v, %v", a, err)
	}
}
