package certificates_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/certificates"
)

// write writes a new certificate and its key.
func write(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{{cert, "CERTIFICATE", der}, {key, "PRIVATE KEY", pkcs8}} {
		if f.path == "" {
			continue
		}
		if err := os.WriteFile(f.path, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der}), 0o600); err != nil {
			t.Fatal(err)
		}
		// A file system with coarse times would hide the change.
		at := time.Now().Add(time.Duration(serial) * time.Minute)
		if err := os.Chtimes(f.path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A client shows the server the certificate that is in the files when it connects, and the
// last complete one while only one file is replaced or none can be read.
func TestPair_Client(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, key, 1)
	pair, err := certificates.Load(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan int64, 1)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: pair.Server, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			shown <- s.PeerCertificates[0].SerialNumber.Int64()
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	connect := func(step string, want int64) {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, GetClientCertificate: pair.Client}}).DialContext(t.Context(), "tcp", ln.Addr().String()) //nolint:gosec // certificates of this test
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		defer conn.Close()
		if got := <-shown; got != want {
			t.Errorf("%s: the server sees certificate %d, want %d", step, got, want)
		}
	}
	connect("at first", 1)
	write(t, cert, "", 2)
	connect("without the key of the new one", 1)
	write(t, cert, key, 3)
	connect("renewed", 3)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	connect("without a file", 3)
}

func TestLoad_WithoutFiles(t *testing.T) {
	t.Parallel()
	if _, err := certificates.Load("/none/tls.crt", "/none/tls.key", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("Load() of missing files has no error")
	}
}
