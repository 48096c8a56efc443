//go:build peers

package peers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/test/clitest"
	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(dir, name+".pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(template, template)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.key = key
	a.write(a.file, block("CERTIFICATE", der))
	return a
}

// sign returns a certificate of a new key, signed by parent's; the authority's own signs itself.
func (a *authority) sign(template, parent *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer); err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue writes a certificate for loopback and its key; both may be one file.
func (a *authority) issue(cert, key string) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: filepath.Base(cert)}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert == key {
		a.write(cert, append(block("PRIVATE KEY", pkcs8), block("CERTIFICATE", der)...))
		return
	}
	a.write(cert, block("CERTIFICATE", der))
	a.write(key, block("PRIVATE KEY", pkcs8))
}

func (a *authority) write(file string, b []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// tokenEndpoint issues unsecured tokens (RFC 7515, appendix A.5) that expire soon.
func tokenEndpoint(t *testing.T) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "relay" || password != "hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		now := time.Now().Unix()
		token := part(map[string]string{"alg": "none"}) + "." + part(map[string]any{"sub": user, "iat": now - 5, "exp": now + 60}) + "."
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 60})
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// Every SASL mechanism but that of AWS works over mutual TLS; what is wrong is refused; and a
// client certificate that is renewed in its files is used by the next connection.
func TestPeerKafka_TLSAndSASL(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	trusted, foreign := newAuthority(t, dir, "ca"), newAuthority(t, dir, "foreign")
	trusted.issue(file("broker.pem"), file("broker.pem"))
	trusted.issue(file("client.crt"), file("client.key"))
	foreign.issue(file("foreign.crt"), file("foreign.key"))
	broker := peers.StartKafka(t, peers.Config{Heap: "512m", Secure: &peers.Security{
		Keystore: file("broker.pem"), Truststore: trusted.file, User: "relay", Password: "hush",
	}})
	tokens := tokenEndpoint(t)

	// options returns the product's options for a login over TLS.
	options := func(login, ca, cert string) []kgo.Opt {
		t.Helper()
		yaml := fmt.Sprintf("kafka: {seeds: %s, tls: true, tls_ca: %s, %s", broker.Addr, file(ca), login)
		if cert != "" {
			yaml += fmt.Sprintf(", tls_cert: %s, tls_key: %s", file(cert+".crt"), file(cert+".key"))
		}
		flags := func(cmd *cobra.Command) { app.AddFlags(cmd, app.RelaySections...) }
		c, err := clitest.Config(t, app.LoadConfigFrom, flags, yaml+"}", nil)
		if err != nil {
			t.Fatal(err)
		}
		opts, err := c.Kafka.Options()
		if err != nil {
			t.Fatal(err)
		}
		return append(opts, kgo.SeedBrokers(broker.Addr), kgo.AllowAutoTopicCreation())
	}
	publish := func(opts []kgo.Opt) error {
		t.Helper()
		client, err := kgo.NewClient(append(opts, kgo.RecordDeliveryTimeout(5*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		// A client retries connections that fail, as with a certificate that is not renewed yet.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := client.Ping(ctx); err != nil {
			return err
		}
		return client.ProduceSync(ctx, &kgo.Record{Topic: "secured", Value: []byte("x")}).FirstErr()
	}

	const scram = "sasl: scram-sha-512, username: relay, password: hush"
	bearer := "sasl: oauthbearer, username: relay, token_url: '" + tokens + "', password: "
	for _, tt := range []struct {
		name, login, ca, cert string
		refused               bool
	}{
		{"plain", "sasl: plain, username: relay, password: hush", "ca.pem", "client", false},
		{"scram-sha-256", "sasl: scram-sha-256, username: relay, password: hush", "ca.pem", "client", false},
		{"scram-sha-512", scram, "ca.pem", "client", false},
		{"oauthbearer", bearer + "hush", "ca.pem", "client", false},
		{"wrong password", "sasl: plain, username: relay, password: hash", "ca.pem", "client", true},
		{"wrong password of SCRAM", "sasl: scram-sha-512, username: relay, password: hash", "ca.pem", "client", true},
		{"wrong client secret", bearer + "hash", "ca.pem", "client", true},
		{"broker of another authority", scram, "foreign.pem", "client", true},
		{"no client certificate", scram, "ca.pem", "", true},
		{"client certificate of another authority", scram, "ca.pem", "foreign", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := publish(options(tt.login, tt.ca, tt.cert))
			if (err != nil) != tt.refused {
				t.Errorf("publishing: %v, want refused=%v", err, tt.refused)
			}
			if tt.name == "wrong password" && !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("the error is %v, want SASL_AUTHENTICATION_FAILED", err)
			}
		})
	}
	t.Run("renewed client certificate", func(t *testing.T) {
		opts := options(scram, "ca.pem", "client")
		foreign.issue(file("client.crt"), file("client.key"))
		if err := publish(opts); err == nil {
			t.Error("the broker accepts the certificate of before the renewal, want the one in the files, which it does not trust")
		}
		trusted.issue(file("client.crt"), file("client.key"))
		if err := publish(opts); err != nil {
			t.Errorf("after the renewal: %v", err)
		}
	})
}
