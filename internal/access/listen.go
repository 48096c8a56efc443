package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/scylla-outbox/scylla-outbox/internal/certificates"
)

// ErrInClear means that an address beyond loopback has no TLS.
var ErrInClear = errors.New("tokens would be sent unencrypted")

// Listen listens on addr, host:port, with TLS if there is a certificate. A certificate
// that is renewed in its files is used by the next connection. Beyond loopback Listen
// refuses to listen without a certificate, unless insecure is set because the connection
// is protected otherwise. log logs renewals.
func Listen(ctx context.Context, addr, cert, key string, insecure bool, log *slog.Logger) (net.Listener, error) {
	conf, err := listenerTLS(addr, cert, key, insecure, log)
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP on %s: %w", addr, err)
	}
	if conf == nil {
		return ln, nil
	}
	return tls.NewListener(ln, conf), nil
}

// Check returns the error with which Listen refuses its arguments, without listening.
func Check(addr, cert, key string, insecure bool, log *slog.Logger) error {
	_, err := listenerTLS(addr, cert, key, insecure, log)
	return err
}

// listenerTLS returns the configuration of TLS for a listener; nil without a certificate.
func listenerTLS(addr, cert, key string, insecure bool, log *slog.Logger) (*tls.Config, error) {
	if (cert == "") != (key == "") {
		return nil, errors.New("the TLS certificate and its key are both required")
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: must be host:port: %w", addr, err)
	}
	if cert == "" && !insecure && !LoopbackHost(host) {
		return nil, fmt.Errorf("listen on %s without TLS: %w", addr, ErrInClear)
	}
	if cert == "" {
		return nil, nil
	}
	pair, err := certificates.Load(cert, key, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Server, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// LoopbackHost reports whether a host is only this machine. A name other than localhost
// may resolve to another machine later, so it is not.
func LoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
