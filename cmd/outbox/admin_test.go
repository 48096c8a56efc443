package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// token runs outbox token and returns the token and a file with its entry.
func token(t *testing.T, role string) (secret, file string) {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run([]string{"token", "ann", "--role", role}, &out, &errOut); code != cli.ExitOK {
		t.Fatalf("exit status %d: %s", code, errOut.String())
	}
	secret, entry, ok := strings.Cut(strings.TrimSpace(out.String()), "\n")
	if !ok || strings.Contains(entry, secret) || strings.Contains(errOut.String(), secret) {
		t.Fatalf("what it says beside the token: %s %s", entry, errOut.String())
	}
	file = filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte("admin:\n  tokens:\n    - "+entry+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return secret, file
}

// The entry that 'outbox token' prints lets the token in that it prints.
func TestAdmin_TokenIsAccepted(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	event := b.writeDeadLetter(1, nil)
	secret, file := token(t, "operator")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(yaml), nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	gate, err := c.AdminGate(log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.StartAdmin(t.Context(), c, gate, b.session, nil, app.NewRegistry(""), log, c.ListenAdmin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	get := func(path, secret string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body
	}
	if code, body := get("/v1/me", secret); code != 200 || string(bytes.TrimSpace(body)) != `{"name":"ann","role":"operator"}` {
		t.Errorf("/v1/me = %d %s", code, body)
	}
	if code, _ := get("/v1/me", secret+"x"); code != 401 {
		t.Errorf("another token = %d, want 401", code)
	}
	if code, body := get("/v1/dead-letters/"+event, secret); code != 200 || !strings.Contains(string(body), event) {
		t.Errorf("the dead letter = %d %s", code, body)
	}
	if code, body := get("/console/", secret); code != 200 || !strings.Contains(string(body), "<html") {
		t.Errorf("/console/ = %d %.200s", code, body)
	}

	// The status that a relay writes has exactly the fields that the API describes.
	conf, err := c.RelayConfig()
	if err != nil {
		t.Fatal(err)
	}
	conf.Session = b.session
	r, err := relay.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it writes once, and that it stopped
	r.Heartbeat(ctx, "v9", time.Hour)
	var said string
	if err := b.session.Query("SELECT status FROM outbox.relay_instances WHERE scope = 'keyspace'").Scan(&said); err != nil {
		t.Fatal(err)
	}
	var status heartbeat.RelayStatus
	d := json.NewDecoder(strings.NewReader(said))
	d.DisallowUnknownFields()
	if err := d.Decode(&status); err != nil {
		t.Errorf("the API does not know all of %s: %v", said, err)
	}
	var relays struct {
		Relays []struct {
			Shards []struct {
				Name, Table, State, Version string
				Silent                      bool
			}
		}
	}
	if code, body := get("/v1/relays", secret); code != 200 || json.Unmarshal(body, &relays) != nil || len(relays.Relays) != 1 || len(relays.Relays[0].Shards) != 1 ||
		fmt.Sprint(relays.Relays[0].Shards[0]) != "{"+conf.Name+" outbox.outbox_messages stopped v9 false}" {
		t.Errorf("/v1/relays = %d %s", code, body)
	}
}

func TestAdmin_RefusesWhatIsNotSafe(t *testing.T) {
	t.Parallel()
	_, file := token(t, "viewer")
	signIn := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(signIn, []byte("admin: {oidc_issuer: 'https://id.example.com', oidc_audience: outbox, oidc_client_secret: short}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no token", []string{"admin"}, "configure tokens or an OpenID Connect issuer"},
		{"a role that does not exist", []string{"token", "x", "--role", "root"}, `role "root"`},
		{"an odd name", []string{"token", "a b"}, "name"},
		{"OIDC without an audience", []string{"admin", "--config", file, "--admin-oidc-issuer", "https://id.example.com"}, "audience"},
		{"trust in everybody", []string{"admin", "--config", file, "--http-trusted-proxies", "0.0.0.0/0"}, "http.trusted_proxies"},
		{"OIDC in the clear", []string{"admin", "--config", file, "--admin-oidc-issuer", "http://id.example.com", "--admin-oidc-audience", "x"}, "https"},
		{"config check of a sign-in without a console", []string{"config", "check", "--config", signIn}, "notifications.console_url: with"},
		{"config check of a short secret", []string{"config", "check", "--config", signIn}, "admin.oidc_client_secret: has 5 characters"},
	} {
		var out, errOut bytes.Buffer
		if code := run(tt.args, &out, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("%s: exit status %d: %s", tt.name, code, errOut.String())
		}
	}
	var c app.Config
	c.Admin.Addr = "0.0.0.0:0"
	if _, err := c.ListenAdmin(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), access.ErrInClear.Error()) {
		t.Errorf("listening everywhere without TLS: %v", err)
	}
}

// Both servers read the entry that the one command prints.
func TestConfig_TokensReadTheSameForBothServers(t *testing.T) {
	t.Parallel()
	secret, file := token(t, "operator")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(t, string(text)+strings.Replace(string(text), "admin:", "http:", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for name, gate := range map[string]func(*slog.Logger) (*access.Gate, error){"http": c.HTTP.Gate, "admin": c.AdminGate} {
		g, err := gate(log)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p, err := g.Authenticate(t.Context(), "Bearer "+secret, "127.0.0.1:1"); err != nil || p.Name != "ann" || p.Role != access.Operator {
			t.Errorf("%s: Authenticate() = %+v, %v", name, p, err)
		}
	}
	for _, bad := range []string{"x", "a:viewer", "a:rolle:sha256:00", secret, "a:admin:" + secret} {
		var conf app.AdminConfig
		conf.Tokens = []string{bad}
		for key, gate := range map[string]func(*slog.Logger) (*access.Gate, error){
			"http.tokens": (&app.HTTPConfig{Tokens: []string{bad}, TokenRate: 1}).Gate, "admin.tokens": (&app.Config{Admin: conf}).AdminGate,
		} {
			if _, err := gate(log); err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %q: %v, want it to name the setting and no token", key, bad, err)
			}
		}
	}
}
