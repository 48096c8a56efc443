//go:build peers

package peers_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/test/certs"
	"github.com/scylla-outbox/scylla-outbox/test/clitest"
	"github.com/scylla-outbox/scylla-outbox/test/peers"
)

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

// Every SASL mechanism but that of AWS works over mutual TLS; wrong credentials and certificates
// are refused; and a client certificate that is renewed in its files is used by the next
// connection.
func TestPeerKafka_TLSAndSASL(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	trusted, foreign := certs.NewAuthority(t, dir, "ca"), certs.NewAuthority(t, dir, "foreign")
	loopback := net.IPv4(127, 0, 0, 1)
	trusted.Issue(file("broker.pem"), file("broker.pem"), loopback)
	trusted.Issue(file("client.crt"), file("client.key"), loopback)
	foreign.Issue(file("foreign.crt"), file("foreign.key"), loopback)
	broker := peers.StartKafka(t, peers.Config{Heap: "512m", Secure: &peers.Security{
		Keystore: file("broker.pem"), Truststore: trusted.File, User: "relay", Password: "hush",
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
		client, err := kgo.NewClient(append(opts, kgo.RecordDeliveryTimeout(15*time.Second))...)
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
		foreign.Issue(file("client.crt"), file("client.key"), loopback)
		if err := publish(opts); err == nil {
			t.Error("the broker accepts the certificate of before the renewal, want the one in the files, which it does not trust")
		}
		trusted.Issue(file("client.crt"), file("client.key"), loopback)
		if err := publish(opts); err != nil {
			t.Errorf("after the renewal: %v", err)
		}
	})
}
