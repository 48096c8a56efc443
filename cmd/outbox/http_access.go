package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

func newTokenCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a bearer token for the order API, and the entry of http.tokens that lets it in",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, hash := access.NewToken()
			entry := strings.Join([]string{args[0], role, hash}, ":")
			if _, err := (&httpConfig{Tokens: []string{entry}, TokenRate: 1}).gate(slog.New(slog.DiscardHandler)); err != nil {
				return usageError{err}
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "The token, shown once and kept nowhere, and below it the entry of http.tokens:")
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", secret, entry)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", string(access.Operator), "viewer (reads), operator (also writes) or admin")
	return cmd
}

// gate is who may use the order API; nil if everybody may.
func (c *httpConfig) gate(log *slog.Logger) (*access.Gate, error) {
	if len(c.Tokens) == 0 {
		return nil, nil
	}
	var tokens []access.Token
	for i, entry := range c.Tokens {
		name, rest, ok := strings.Cut(strings.TrimSpace(entry), ":")
		role, hash, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			return nil, fmt.Errorf("http.tokens: entry %d is not NAME:ROLE:sha256:HEX; 'outbox token NAME' prints one", i+1)
		}
		tokens = append(tokens, access.Token{Name: name, Role: access.Role(role), Hash: hash})
	}
	g, err := access.New(access.Config{
		Tokens: tokens, RequestsPerSecond: c.TokenRate, RequestsBurst: max(1, int(2*c.TokenRate)), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("http.tokens: %w", err)
	}
	return g, nil
}

// listen listens on the configured address, with TLS if there is a certificate.
// Beyond loopback it wants both TLS and tokens, unless http.insecure.
func (c *httpConfig) listen(ctx context.Context) (net.Listener, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, usageError{errors.New("http.tls_cert and http.tls_key go together: one is missing")}
	}
	ln, err := access.Listen(ctx, c.Addr, c.TLSCert, c.TLSKey, c.Insecure)
	if errors.Is(err, access.ErrInClear) {
		return nil, usageError{withHint(fmt.Errorf("http.addr: %w", err), "set http.tls_cert and http.tls_key, or http.insecure if something else protects the way")}
	}
	if err != nil {
		return nil, err
	}
	at, ok := ln.Addr().(*net.TCPAddr)
	if len(c.Tokens) == 0 && !c.Insecure && !(ok && at.IP.IsLoopback()) {
		err := fmt.Errorf("http.addr %s is beyond loopback and there are no http.tokens: everybody could change orders", c.Addr)
		return nil, errors.Join(usageError{withHint(err, "'outbox token NAME' makes a token; http.insecure says that something else protects the way")}, ln.Close())
	}
	return ln, nil
}
