package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func TestHTTP_GateReadsTokens(t *testing.T) {
	t.Parallel()
	secret, hash := access.NewToken()
	log := slog.New(slog.DiscardHandler)
	c := &app.HTTPConfig{Tokens: []string{"shop:operator:" + hash}, TokenRate: 1000}
	g, err := c.Gate(log)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := g.Authenticate(context.Background(), "Bearer "+secret, "127.0.0.1:1"); err != nil || p.Name != "shop" || p.Role != access.Operator {
		t.Errorf("Authenticate() = %+v, %v", p, err)
	}
	if g, err := (&app.HTTPConfig{}).Gate(log); g != nil || err != nil {
		t.Errorf("without tokens: %v, %v, want nobody asked", g, err)
	}
	for _, bad := range []string{"shop", "shop:operator", "shop:king:" + hash, "shop:viewer:sha256:12", ":viewer:" + hash} {
		if _, err := (&app.HTTPConfig{Tokens: []string{bad}, TokenRate: 1}).Gate(log); err == nil || !strings.Contains(err.Error(), "http.tokens") {
			t.Errorf("gate(%q) = %v, want an error that names http.tokens", bad, err)
		}
	}
}

// Beyond loopback neither orders nor tokens travel in the clear, and nobody writes without a token,
// unless the settings allow it.
func TestHTTP_ListenBeyondLoopback(t *testing.T) {
	t.Parallel()
	var half app.HTTPConfig
	half.TLSCert = "cert.pem"
	for name, tt := range map[string]struct {
		addr string
		conf app.HTTPConfig
		ok   bool
	}{
		"loopback":          {"127.0.0.1:0", app.HTTPConfig{}, true},
		"elsewhere":         {"0.0.0.0:0", app.HTTPConfig{}, false},
		"elsewhere, tokens": {"0.0.0.0:0", app.HTTPConfig{Tokens: []string{"x"}}, false},
		"told so":           {"0.0.0.0:0", app.HTTPConfig{Insecure: true}, true},
		"half a pair":       {"127.0.0.1:0", half, false},
	} {
		c := &app.Config{HTTP: tt.conf, OrdersAddr: tt.addr, Messages: app.MessagesConfig{Addr: tt.addr}}
		for _, listen := range []app.Listening{c.ListenOrders, c.ListenMessages} {
			ln, err := listen(t.Context(), slog.New(slog.DiscardHandler))
			if (err == nil) != tt.ok {
				t.Errorf("%s: listen() = %v, want ok %v", name, err, tt.ok)
			}
			if ln != nil && err == nil {
				if err := ln.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Every wrong setting is reported before the wait for the database.
func TestHTTP_ReportsEveryProblemImmediately(t *testing.T) {
	t.Setenv("OUTBOX_HTTP_TOKENS", "shop")
	for _, command := range []string{"orders", "messages"} {
		var out, errOut bytes.Buffer
		code := run([]string{command, "--scylla-hosts", "127.0.0.1:1", "--http-trusted-proxies", "::/0"}, &out, &errOut)
		for _, want := range []string{"http.tokens", "http.trusted_proxies", `"::/0": would trust every address`} {
			if code != cli.ExitUsage || !strings.Contains(errOut.String(), want) {
				t.Errorf("%s: exit status %d: %s, want it to say %s", command, code, errOut.String(), want)
			}
		}
	}
}
