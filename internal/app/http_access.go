package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// tokenHint is the hint for errors of tokens.
const tokenHint = "'outbox token NAME --role operator' prints a token and its entry"

// Gate returns the access control of the APIs for programs, nil if it permits every client.
func (c *HTTPConfig) Gate(log *slog.Logger) (*access.Gate, error) {
	if len(c.Tokens) == 0 {
		return nil, nil
	}
	tokens, err := readTokens("http.tokens", c.Tokens)
	if err != nil {
		return nil, cli.WithHint(err, tokenHint)
	}
	g, err := access.New(access.Config{
		Tokens: tokens, RequestsPerSecond: c.TokenRate, RequestsBurst: max(1, int(2*c.TokenRate)), Logger: log,
	})
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("http.tokens: %w", err), tokenHint)
	}
	return g, nil
}

// listen listens on the address of a setting with its flag, with TLS if there is a certificate.
// Beyond loopback it requires TLS and tokens, unless http.insecure is set.
func (c *HTTPConfig) listen(ctx context.Context, log *slog.Logger, addr, key, flag string) (net.Listener, error) {
	if err := c.checkPair(); err != nil {
		return nil, err
	}
	ln, err := access.Listen(ctx, addr, c.TLSCert, c.TLSKey, c.Insecure, log)
	if errors.Is(err, access.ErrInClear) {
		return nil, inClear(key, err)
	}
	if err != nil {
		return nil, cli.PortHint(err, addr, flag)
	}
	at, ok := ln.Addr().(*net.TCPAddr)
	if len(c.Tokens) == 0 && !c.Insecure && !(ok && at.IP.IsLoopback()) {
		return nil, errors.Join(withoutTokens(key, addr), ln.Close())
	}
	return ln, nil
}

// checkListener returns the error with which a process refuses to listen on the address of a
// setting, without listening. tokens reports whether its API has tokens.
func (c *HTTPConfig) checkListener(log *slog.Logger, key, addr string, tokens bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err == nil {
		err = access.Check(addr, c.TLSCert, c.TLSKey, c.Insecure, log)
	}
	switch {
	case errors.Is(err, access.ErrInClear):
		return inClear(key, err)
	case err == nil && !tokens && !c.Insecure && !access.LoopbackHost(host):
		return withoutTokens(key, addr)
	case err != nil:
		return cli.Usage(fmt.Errorf("http.tls_cert, http.tls_key: %w", err))
	}
	return nil
}

// inClear is the error of an address beyond loopback without TLS.
func inClear(key string, err error) error {
	return cli.Usage(cli.WithHint(fmt.Errorf("%s: %w", key, err), "set http.tls_cert and http.tls_key, or http.insecure if something else protects the connection"))
}

// withoutTokens is the error of an address beyond loopback without tokens.
func withoutTokens(key, addr string) error {
	err := fmt.Errorf("%s %s is beyond loopback and http.tokens is empty: every client could change everything", key, addr)
	return cli.Usage(cli.WithHint(err, tokenHint+"; set http.insecure if something else protects the connection"))
}

// checkPair returns an error if only one of certificate and key is set.
func (c *serverConfig) checkPair() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return cli.Usage(errors.New("http.tls_cert and http.tls_key go together: one is missing"))
	}
	return nil
}

// AllowedHosts returns the host names that the API at an address accepts while no tokens are
// configured. An invalid name in http.hosts is an error of usage.
func (c *HTTPConfig) AllowedHosts(addr string) (*access.Hosts, error) {
	h, err := access.NewHosts(addr, c.Hosts)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("http.hosts: %w", err))
	}
	return h, nil
}

// Proxies returns the trusted reverse proxies.
func (c *HTTPConfig) Proxies() (access.Proxies, error) {
	p, err := access.NewProxies(c.TrustedProxies)
	if err != nil {
		return p, cli.Usage(fmt.Errorf("http.trusted_proxies: %w", err))
	}
	return p, nil
}
