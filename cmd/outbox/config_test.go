package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/test/certs"
)

// The configuration in force is printed, secrets are not, and each problem is an error.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := func(want int, args ...string) (string, string) {
		t.Helper()
		var out, errOut bytes.Buffer
		if code := run(append(append([]string{"config"}, args...), "--config", file), &out, &errOut); code != want {
			t.Errorf("config %v: status %d, want %d\n%s%s", args, code, want, out.String(), errOut.String())
		}
		return out.String(), errOut.String()
	}
	t.Setenv("OUTBOX_SCYLLA_PASSWORD", "hunter2")
	t.Setenv("OUTBOX_RELAY_SHARDS", "4")
	write("scylla: {hosts: [db-1], username: shop, password: swordfish}\nrelay: {shards: 2, attempt_timeout: 9s, tables: [{table: events}]}\n")
	out, _ := config(cli.ExitOK, "print", "-o", "json")
	var got struct {
		Scylla struct {
			Hosts    []string
			Password string
		}
		Relay struct {
			Shards int
			Drain  string           `json:"attempt_timeout"`
			Tables []map[string]any `json:"tables"`
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Scylla.Hosts[0] != "db-1" || got.Relay.Shards != 4 || got.Relay.Drain != "9s" || len(got.Relay.Tables) != 1 || got.Relay.Tables[0]["table"] != "events" {
		t.Errorf("config print = %+v", got)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		if out, _ := config(cli.ExitOK, "print", "-o", format); strings.Contains(out, "hunter2") || strings.Contains(out, "swordfish") || !strings.Contains(out, "(redacted)") {
			t.Errorf("config print -o %s = %s", format, out)
		}
	}
	if out, _ := config(cli.ExitOK, "check"); !strings.Contains(out, "the configuration is valid") {
		t.Errorf("config check = %s", out)
	}
	for text, want := range map[string]string{
		"relay: {shard: 2}":                                "relay.shard",
		"relay: {attempt_timeout: soon}":                   "relay.attempt_timeout",
		"scylla: {keyspace: 'A B'}":                        "A B",
		"archive: {url: 'no://b'}":                         "outbox-cloud",
		"kafka: {password: 'file:/no'}":                    "kafka.password",
		"http: {tokens: [nobody]}":                         "http.tokens",
		"admin: {tokens: [nobody]}":                        "admin.tokens",
		"messages: {addr: nowhere}":                        "messages.addr",
		"admin: {addr: 'a:b'}":                             "admin.addr",
		"ops: {addr: ''}":                                  "ops.addr",
		"hints: {addr: '127.0.0.1:1'}":                     "hints.key",
		"api: {admin_url: 'no URL'}":                       "api.admin_url",
		"http: {tls_cert: a.pem}":                          "http.tls_key",
		"http: {tls_cert: a.pem, tls_key: a.key}":          "http.tls_cert, http.tls_key: TLS certificate: stat a.pem",
		"messages: {addr: '0.0.0.0:8084'}":                 "messages.addr: listen on 0.0.0.0:8084 without TLS",
		"admin: {addr: ':8090'}":                           "admin.addr: listen on :8090 without TLS",
		"http: {trusted_proxies: [a]}":                     "http.trusted_proxies",
		"messages: {max_bytes: 2000000}":                   "archive.url",
		"schema: {tablets: maybe}":                         "maybe",
		"notifications: {targets: ['chat=nothing://a']}":   "notifications.targets",
		"subscriptions: {targets: ['chat=nothing://a']}":   "subscriptions.targets",
		"kafka: {sasl: none}":                              "kafka.sasl",
		"relay: {tables: [{table: a, topic: '${event}'}]}": "table outbox.a",
	} {
		write(text)
		if _, errOut := config(cli.ExitUsage, "check"); !strings.Contains(errOut, want) {
			t.Errorf("config check of %q: %s, want %q", text, errOut, want)
		}
	}
	write("kafka: {tls: true, tls_ca: /no.pem}") // of several clients
	if _, errOut := config(cli.ExitUsage, "check"); strings.Count(errOut, "/no.pem") != 1 {
		t.Errorf("config check names a missing file not once: %s", errOut)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certs.NewAuthority(t, dir, "ca").Issue(cert, key, net.IPv4(127, 0, 0, 1))
	write(fmt.Sprintf("http: {tls_cert: %s, tls_key: %s}\nsubscriptions: {addr: '0.0.0.0:8082'}", cert, key))
	if _, errOut := config(cli.ExitUsage, "check"); !strings.Contains(errOut, "subscriptions.addr 0.0.0.0:8082 is beyond loopback and http.tokens is empty") {
		t.Errorf("config check of subscriptions without tokens: %s", errOut)
	}
	write("")
	t.Setenv("OUTBOX_RELAY_SHARD", "4")
	if _, errOut := config(cli.ExitUsage, "check"); !strings.Contains(errOut, "OUTBOX_RELAY_SHARD is no variable of a setting") {
		t.Errorf("config check with an unknown variable: %s", errOut)
	}
}

// A context is a configuration file of the user, and the shell completes its name.
func TestConfig_Context(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	if err := os.Mkdir(filepath.Join(dir, "outbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "outbox", "prod.yml")
	if err := os.WriteFile(file, []byte("scylla: {keyspace: shop}\napi: {token: canary, admin_url: 'no URL'}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		variable, args string
		code           int
		want           string
	}{
		{"", "config print --context prod", cli.ExitOK, "shop"},
		{"prod", "config print", cli.ExitOK, "shop"},
		{"prod", "config check", cli.ExitUsage, "api.admin_url"},
		{"prod", "dlq stats", cli.ExitUsage, "other users can read secrets"},
		{"", "dlq stats --context prd", cli.ExitUsage, "the contexts are prod"},
		{"", "__complete dlq list --context ", cli.ExitOK, "prod\n"},
	} {
		t.Setenv("OUTBOX_CONTEXT", tt.variable)
		var out bytes.Buffer
		args := strings.Fields(tt.args)
		if strings.HasSuffix(tt.args, " ") {
			args = append(args, "")
		}
		if code := run(args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), "canary") {
			t.Errorf("OUTBOX_CONTEXT=%s outbox %s: status %d\n%swant %d and %q", tt.variable, tt.args, code, out.String(), tt.code, tt.want)
		}
	}
}
