package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/test/certs"
)

// The database must have a certificate of scylla.tls_ca for its address, and receives the client
// certificate that is in the files when a connection is made.
func TestScylla_TLS(t *testing.T) {
	t.Parallel()
	node, _ := scyllatest.Start(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	trusted, foreign := certs.NewAuthority(t, dir, "ca"), certs.NewAuthority(t, dir, "foreign")
	clients := x509.NewCertPool()
	clients.AddCert(trusted.Cert)
	loopback := net.IPv4(127, 0, 0, 1)
	issue := func(a *certs.Authority, name string, ip net.IP) { a.Issue(file(name+".crt"), file(name+".key"), ip) }
	// listen returns the address of the node behind TLS, with a certificate of ip.
	listen := func(name string, ip net.IP) string {
		issue(trusted, name, ip)
		cert, err := tls.LoadX509KeyPair(file(name+".crt"), file(name+".key"))
		must(err)
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
		must(err)
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					to, err := node.DialContext(t.Context(), "tcp", node.Addr())
					if err != nil {
						return
					}
					defer to.Close()
					go func() {
						_, _ = io.Copy(conn, to)
						conn.Close()
					}()
					_, _ = io.Copy(to, conn)
				}()
			}
		}()
		return ln.Addr().String()
	}
	right, wrongName := listen("node", loopback), listen("other", net.IPv4(10, 0, 0, 1))
	issue(trusted, "client", loopback)
	issue(foreign, "stranger", loopback)

	config := func(addr, ca, cert string) *Config {
		t.Helper()
		yaml := fmt.Sprintf("scylla: {hosts: ['%s'], tls: true, tls_ca: %s", addr, ca)
		if cert != "" {
			yaml += fmt.Sprintf(", tls_cert: %s, tls_key: %s", file(cert+".crt"), file(cert+".key"))
		}
		c, err := parseConfig(t, yaml+"}", nil)
		must(err)
		return c
	}
	prepare := func(c *Config) *gocql.ClusterConfig {
		t.Helper()
		cluster, err := c.Scylla.Cluster("")
		must(err)
		return cluster
	}
	connect := func(what string, cluster *gocql.ClusterConfig, want bool) {
		t.Helper()
		session, err := cluster.CreateSession()
		if err == nil {
			defer sessions.Close(session)
			err = session.Query("SELECT release_version FROM system.local").Exec()
		}
		if (err == nil) != want {
			t.Errorf("%s: %v, want a connection=%t", what, err, want)
		}
	}
	for _, x := range []struct {
		what, addr, ca, cert string
		want                 bool
	}{
		{"mutual TLS", right, trusted.File, "client", true},
		{"a node of another authority", right, foreign.File, "client", false},
		{"a certificate of another address", wrongName, trusted.File, "client", false},
		{"no client certificate", right, trusted.File, "", false},
		{"a client certificate of another authority", right, trusted.File, "stranger", false},
	} {
		connect(x.what, prepare(config(x.addr, x.ca, x.cert)), x.want)
	}
	c := config(right, trusted.File, "client")
	cluster := prepare(c)
	issue(foreign, "client", loopback)
	connect("a replaced client certificate", cluster, false)
	cluster = prepare(c)
	issue(trusted, "client", loopback)
	connect("a renewed client certificate", cluster, true)
}
