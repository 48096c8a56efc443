package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// tokenHint is where tokens come from.
const tokenHint = "'outbox token NAME --role operator' makes a token and prints its entry"

// gate is who may use the order API; nil if everybody may.
func (c *httpConfig) gate(log *slog.Logger) (*access.Gate, error) {
	if len(c.Tokens) == 0 {
		return nil, nil
	}
	tokens, err := readTokens("http.tokens", c.Tokens)
	if err != nil {
		return nil, withHint(err, tokenHint)
	}
	g, err := access.New(access.Config{
		Tokens: tokens, RequestsPerSecond: c.TokenRate, RequestsBurst: max(1, int(2*c.TokenRate)), Logger: log,
	})
	if err != nil {
		return nil, withHint(fmt.Errorf("http.tokens: %w", err), tokenHint)
	}
	return g, nil
}

// listen listens on the configured address, with TLS if there is a certificate.
// Beyond loopback it wants both TLS and tokens, unless http.insecure.
func (c *httpConfig) listen(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, usageError{errors.New("http.tls_cert and http.tls_key go together: one is missing")}
	}
	ln, err := access.Listen(ctx, c.Addr, c.TLSCert, c.TLSKey, c.Insecure, log)
	if errors.Is(err, access.ErrInClear) {
		return nil, usageError{withHint(fmt.Errorf("http.addr: %w", err), "set http.tls_cert and http.tls_key, or http.insecure if something else protects the way")}
	}
	if err != nil {
		return nil, portHint(err, c.Addr, "--http-addr")
	}
	at, ok := ln.Addr().(*net.TCPAddr)
	if len(c.Tokens) == 0 && !c.Insecure && !(ok && at.IP.IsLoopback()) {
		err := fmt.Errorf("http.addr %s is beyond loopback and there are no http.tokens: everybody could change orders", c.Addr)
		return nil, errors.Join(usageError{withHint(err, tokenHint+"; http.insecure says that something else protects the way")}, ln.Close())
	}
	return ln, nil
}

// hosts are the names that the order API answers to while there are no tokens.
func (c *httpConfig) hosts() (*access.Hosts, error) {
	h, err := access.NewHosts(c.Addr, c.Hosts)
	if err != nil {
		return nil, usageError{fmt.Errorf("http.hosts: %w", err)}
	}
	return h, nil
}

// proxies are those whose word on who asked counts.
func (c *httpConfig) proxies() (access.Proxies, error) {
	return newProxies("http", c.TrustedProxies, c.ForwardedHeader)
}

// proxies are those of the admin API.
func (c *adminConfig) proxies() (access.Proxies, error) {
	return newProxies("admin", c.TrustedProxies, c.ForwardedHeader)
}

func newProxies(section string, networks []string, header string) (access.Proxies, error) {
	p, err := access.NewProxies(networks, access.ForwardedHeader(header))
	if err != nil {
		return p, usageError{fmt.Errorf("%[1]s.trusted_proxies and %[1]s.forwarded_header: %[2]w", section, err)}
	}
	return p, nil
}
