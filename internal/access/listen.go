package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
)

// ErrInClear says that an address beyond loopback has no TLS.
var ErrInClear = errors.New("tokens would travel in the clear")

// Listen listens on addr, host:port, with TLS if there is a certificate: one that is
// renewed in its files is used by the next connection. Beyond loopback it refuses to
// listen without one, unless insecure says that something else protects the way.
// log is told of renewals.
func Listen(ctx context.Context, addr, cert, key string, insecure bool, log *slog.Logger) (net.Listener, error) {
	if (cert == "") != (key == "") {
		return nil, errors.New("the TLS certificate and its key go together: one is missing")
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: write host:port: %w", addr, err)
	}
	if cert == "" && !insecure && !loopbackHost(host) {
		return nil, fmt.Errorf("listen on %s without TLS: %w", addr, ErrInClear)
	}
	var conf *tls.Config
	if cert != "" {
		c, err := newCertificate(cert, key, log)
		if err != nil {
			return nil, err
		}
		conf = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
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

// loopbackHost tells whether a host is this machine alone. A name other than
// localhost may come to mean something else, so it is not.
func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
