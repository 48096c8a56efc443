package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func TestContactPoints(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		hosts string
		port  int
		bad   string
	}{
		{in: "scylla", hosts: "scylla", port: 9042},
		{in: "scylla:9042", hosts: "scylla", port: 9042},
		{in: "a, b:19042,c", hosts: "a b c", port: 19042},
		{in: "10.0.0.1,10.0.0.2:9043", hosts: "10.0.0.1 10.0.0.2", port: 9043},
		{in: "::1", hosts: "::1", port: 9042},
		{in: "[::1]", hosts: "::1", port: 9042},
		{in: "[2001:db8::7]:9043,2001:db8::8", hosts: "2001:db8::7 2001:db8::8", port: 9043},
		{in: "scylla:", bad: "no port number"},
		{in: "scylla:cql", bad: "no port number"},
		{in: "scylla:0", bad: "no port number"},
		{in: "a:1,b:2", bad: "one port"},
		{in: ":9042", bad: "names no host"},
		{in: " ", bad: "names no host"},
		{in: "a:b:c", bad: "neither host"},
		{bad: "is empty"},
	} {
		var in []string
		if tt.in != "" {
			in = strings.Split(tt.in, ",")
		}
		hosts, port, err := app.ContactPoints(in)
		if tt.bad != "" {
			if !errors.As(err, new(cli.UsageError)) || !strings.Contains(err.Error(), tt.bad) {
				t.Errorf("contactPoints(%q) = %v, want %q", tt.in, err, tt.bad)
			}
			continue
		}
		if err != nil || strings.Join(hosts, " ") != tt.hosts || port != tt.port {
			t.Errorf("contactPoints(%q) = %q, %d, %v, want %q, %d", tt.in, hosts, port, err, tt.hosts, tt.port)
		}
	}
}

// The arguments that commands cannot run without.
var commandArguments = map[string][]string{
	"admin":                   {"--admin-addr", "127.0.0.1:0", "--ops-addr", "off", "--config", "TOKENS"},
	"orders":                  {"--orders-addr", "127.0.0.1:0", "--http-insecure", "--ops-addr", "off"},
	"messages":                {"--messages-addr", "127.0.0.1:0", "--http-insecure", "--ops-addr", "off"},
	"relay":                   {"--ops-addr", "127.0.0.1:0"},
	"subscriptions redeliver": {"mail", "--key", "k", "--dry-run"},
	"subscriptions":           {"--subscriptions-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0"},
	"notifier":                {"--ops-addr", "127.0.0.1:0"},
	"dlq archive run":         {"--archive-url", "DIR"},
	"relay reshard":           {"--shards", "2"},
	"dlq archive restore":     {"00000000-0000-0000-0000-000000000001"},
	"dlq archive get":         {"00000000-0000-0000-0000-000000000001"},
	"dlq edit":                {"00000000-0000-0000-0000-000000000001"},
	"dlq get":                 {"00000000-0000-0000-0000-000000000001"},
	"events":                  {"00000000-0000-0000-0000-000000000001"},
	"events get":              {"00000000-0000-0000-0000-000000000001"},
	"dlq jobs cancel":         {"00000000-0000-0000-0000-000000000001"},
	"dlq jobs pause":          {"00000000-0000-0000-0000-000000000001"},
	"dlq jobs resume":         {"00000000-0000-0000-0000-000000000001"},
	"dlq jobs get":            {"00000000-0000-0000-0000-000000000001"},
	"dlq jobs watch":          {"00000000-0000-0000-0000-000000000001"},
	"dlq discard":             {"00000000-0000-0000-0000-000000000001"},
	"dlq redirect":            {"00000000-0000-0000-0000-000000000001", "--topic", "t"},
	"dlq reopen":              {"00000000-0000-0000-0000-000000000001"},
	"dlq suspend":             {"00000000-0000-0000-0000-000000000001"},
	"dlq purge":               {"00000000-0000-0000-0000-000000000001"},
	"dlq unblock":             {"00000000-0000-0000-0000-000000000001"},
	"dlq replay":              {"00000000-0000-0000-0000-000000000001"},
	"dlq set":                 {"00000000-0000-0000-0000-000000000001", "--priority", "5"},
	"dlq resolve":             {"00000000-0000-0000-0000-000000000001"},
	"messages get":            {"00000000-0000-0000-0000-000000000001"},
	"messages cancel":         {"--all"},
	"messages deliver-now":    {"--all"},
}

// noDatabase are commands that need no database.
var noDatabase = []string{
	"schema print", "schema asyncapi", "dlq archive get",
}

// Every command that reads scylla.hosts dials port 9042 of a host without a port, and
// a service that waits for its database keeps to it.
func TestCommands_BareHostAndLateDatabase(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs more than one loopback address")
	}
	services := 0
	eachDatabaseCommand(func(c *cobra.Command, name string) {
		waits := slices.Contains([]string{"admin", "messages", "orders", "relay"}, name)
		if waits {
			services++
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bareHost(t, strings.Fields(name), requiredArguments(c, name), waits)
		})
	})
	if services != 4 {
		t.Errorf("found %d services, want 4", services)
	}
}

// eachDatabaseCommand calls f with each command that connects to the database.
func eachDatabaseCommand(f func(c *cobra.Command, name string)) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		name := strings.TrimPrefix(c.CommandPath(), "outbox ")
		if c.Runnable() && c.Flags().Lookup("scylla-hosts") != nil && !slices.Contains(noDatabase, name) {
			f(c, name)
		}
	}
	walk(newRoot(io.Discard, io.Discard))
}

// requiredArguments returns the arguments that a command cannot run without.
func requiredArguments(c *cobra.Command, name string) []string {
	args := slices.Clone(commandArguments[name])
	if c.Flags().Lookup("reason") != nil {
		args = append(args, "--reason", "a test")
	}
	return args
}

// bareHost runs a command whose database refuses every connection, and waits until
// the command has dialed it; a service has to dial again after it has reported that.
func bareHost(t *testing.T, command, arguments []string, service bool) {
	host, _, _ := net.SplitHostPort(freeAddr(t))
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "9042"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	log := &watched{want: "database not ready"}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if !service || log.seen() {
				cancel() // before the command can end because of this connection
			}
			_ = c.Close()
		}
	}()
	root := newRoot(io.Discard, log)
	root.SetArgs(slices.Concat(command, []string{"--scylla-hosts", host}, withFiles(t, arguments)))
	err = root.ExecuteContext(ctx)
	_ = ln.Close()
	if ctx.Err() == nil {
		t.Errorf("ended before it dialed %s:9042: %v", host, err)
	} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("did not dial %s:9042 any more: %s", host, log.text())
	}
}

// withFiles returns the arguments with the files that they mean.
func withFiles(t *testing.T, arguments []string) (args []string) {
	t.Helper()
	for _, arg := range arguments {
		switch arg {
		case "DIR":
			arg = t.TempDir()
		case "TOKENS":
			_, arg = token(t, "operator")
		case "RULES":
			arg = filepath.Join(t.TempDir(), "outbox.yaml")
			if err := os.WriteFile(arg, []byte("react:\n  rules: [{name: all, topics: [OrderCreated], to: log}]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, arg)
	}
	return args
}

// watched is a log in which a text is waited for.
type watched struct {
	want string
	mu   sync.Mutex
	all  strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

func (w *watched) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

func (w *watched) seen() bool { return strings.Contains(w.text(), w.want) }

// The addresses in errors and reports are those dialed.
func TestContactPoints_InReports(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, "", map[string]string{"OUTBOX_SCYLLA_HOSTS": "scylla,::1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Scylla.Addresses(), "scylla:9042, [::1]:9042"; got != want {
		t.Errorf("addresses() = %q, want %q", got, want)
	}
	cluster, err := c.Scylla.Cluster("")
	if err != nil || cluster.Port != 9042 || fmt.Sprint(cluster.Hosts) != "[scylla ::1]" {
		t.Errorf("the driver is given %v and port %d, %v", cluster.Hosts, cluster.Port, err)
	}
}
