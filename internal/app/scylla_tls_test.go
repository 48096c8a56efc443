package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// signer signs certificates.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

// issue writes a certificate of ip and its key, and returns both. Later files have later times,
// which a coarse file system would not have.
func (s *signer) issue(file string, ip net.IP, serial int64) tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: ip == nil, BasicConstraintsValid: true}
	if ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	if s.key == nil {
		s.cert, s.key, s.file = template, key, file+".crt"
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	s.must(err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	s.must(err)
	cert, private := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	for name, text := range map[string][]byte{file + ".crt": cert, file + ".key": private} {
		s.must(os.WriteFile(name, text, 0o600))
		at := time.Now().Add(time.Duration(serial) * time.Minute)
		s.must(os.Chtimes(name, at, at))
	}
	pair, err := tls.X509KeyPair(cert, private)
	s.must(err)
	if ip == nil {
		s.cert, err = x509.ParseCertificate(der)
		s.must(err)
	}
	return pair
}

func (s *signer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// The database must have a certificate of scylla.tls_ca for its address, and receives the client
// certificate that is in the files when a connection is made.
func TestScylla_TLS(t *testing.T) {
	t.Parallel()
	node, _ := scyllatest.Start(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	trusted, foreign := &signer{t: t}, &signer{t: t}
	trusted.issue(file("ca"), nil, 1)
	foreign.issue(file("foreign"), nil, 2)
	clients := x509.NewCertPool()
	clients.AddCert(trusted.cert)
	loopback := net.IPv4(127, 0, 0, 1)
	// listen returns the address of the node behind TLS.
	listen := func(cert tls.Certificate) string {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})
		trusted.must(err)
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
	right := listen(trusted.issue(file("node"), loopback, 3))
	wrongName := listen(trusted.issue(file("other"), net.IPv4(10, 0, 0, 1), 4))
	trusted.issue(file("client"), loopback, 5)
	foreign.issue(file("stranger"), loopback, 6)

	config := func(addr, ca, cert string) *Config {
		t.Helper()
		yaml := fmt.Sprintf("scylla: {hosts: ['%s'], tls: true, tls_ca: %s", addr, ca)
		if cert != "" {
			yaml += fmt.Sprintf(", tls_cert: %s, tls_key: %s", file(cert+".crt"), file(cert+".key"))
		}
		c, err := configOf(t, yaml+"}", nil)
		trusted.must(err)
		return c
	}
	prepare := func(c *Config) *gocql.ClusterConfig {
		t.Helper()
		cluster, err := c.Scylla.Cluster("")
		trusted.must(err)
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
		{"mutual TLS", right, trusted.file, "client", true},
		{"a node of another authority", right, foreign.file, "client", false},
		{"a certificate of another address", wrongName, trusted.file, "client", false},
		{"no client certificate", right, trusted.file, "", false},
		{"a client certificate of another authority", right, trusted.file, "stranger", false},
	} {
		connect(x.what, prepare(config(x.addr, x.ca, x.cert)), x.want)
	}
	c := config(right, trusted.file, "client")
	cluster := prepare(c)
	foreign.issue(file("client"), loopback, 7)
	connect("a replaced client certificate", cluster, false)
	cluster = prepare(c)
	trusted.issue(file("client"), loopback, 8)
	connect("a renewed client certificate", cluster, true)
}
