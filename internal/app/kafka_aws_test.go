//go:build cloud

package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// withRole sets an environment with the credentials of a role. The SDK reads it once.
func withRole(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "ASIAROLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	t.Setenv("AWS_SESSION_TOKEN", "token-of-the-role")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// outbox-cloud signs with the credentials of the environment, which contain the token of a role.
func TestKafka_AWSMSKIAMOfTheEnvironment(t *testing.T) {
	withRole(t)
	c := KafkaConfig{SASL: "aws-msk-iam", tlsConfig: tlsConfig{TLS: true}}
	if err := c.checkSASL(c.SASL); err != nil {
		t.Fatal(err)
	}
	m, err := c.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	signed, b := signedForMSK(t, m)
	if !strings.HasPrefix(signed["x-amz-credential"], "ASIAROLE/") || signed["x-amz-security-token"] != "token-of-the-role" || strings.Contains(string(b), "hush") {
		t.Errorf("the request is %s, want one with the key and the token of the environment", b)
	}
}

// startMSK runs a broker with TLS that authenticates by AWS_MSK_IAM alone, and returns its
// address and the file of its certificate.
func startMSK(t *testing.T, keys ...awssdk.Credentials) (addr, ca string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil) // for its certificate
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := world.StartBroker(t, kfake.TLS(&tls.Config{Certificates: srv.TLS.Certificates}))
	broker.ControlKey(kmsg.SASLHandshake.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		resp := r.ResponseKind().(*kmsg.SASLHandshakeResponse)
		if r.(*kmsg.SASLHandshakeRequest).Mechanism != "AWS_MSK_IAM" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	broker.ControlKey(kmsg.SASLAuthenticate.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		resp := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.SASLAuthBytes = []byte(`{"version":"2020_10_22","request-id":"1"}`)
		if err := verifyMSK(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, keys); err != nil {
			text := err.Error()
			resp.ErrorCode, resp.ErrorMessage, resp.SASLAuthBytes = kerr.SaslAuthenticationFailed.Code, &text, nil
		}
		return resp, nil, true
	})
	return broker.ListenAddrs()[0], ca
}

// verifyMSK verifies the request of a client as MSK does. It makes the signature again with
// the SDK of AWS, which is not the implementation of the client.
func verifyMSK(text []byte, keys []awssdk.Credentials) error {
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	scope := strings.Split(got["x-amz-credential"], "/") // key/date/region/service/aws4_request
	at, err := time.Parse("20060102T150405Z", got["x-amz-date"])
	switch {
	case err != nil:
		return err
	case len(scope) != 5 || scope[2] != "eu-west-1" || scope[3] != "kafka-cluster":
		return fmt.Errorf("scope %q", scope)
	case got["version"] != "2020_10_22" || got["action"] != "kafka-cluster:Connect" || got["host"] != "127.0.0.1" || got["user-agent"] == "":
		return fmt.Errorf("request %v", got)
	case time.Since(at).Abs() > 5*time.Minute:
		return errors.New("expired")
	}
	for _, key := range keys {
		if key.AccessKeyID != scope[0] {
			continue
		}
		query := url.Values{"Action": {got["action"]}, "X-Amz-Expires": {got["x-amz-expires"]}}
		r, err := http.NewRequest(http.MethodGet, "https://"+got["host"]+"/?"+query.Encode(), http.NoBody)
		if err != nil {
			return err
		}
		const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256
		signed, _, err := v4.NewSigner().PresignHTTP(context.Background(), key, r, empty, scope[3], scope[2], at)
		if err != nil {
			return err
		}
		want, err := url.Parse(signed)
		if err != nil {
			return err
		}
		if got["x-amz-signature"] != want.Query().Get("X-Amz-Signature") || got["x-amz-security-token"] != key.SessionToken {
			return errors.New("the signature is wrong")
		}
		return nil
	}
	return fmt.Errorf("no key %q", scope[0])
}

// A broker that verifies signatures admits a client with a key, or with the role of the
// environment, and no other.
func TestKafka_AWSMSKIAMWithABroker(t *testing.T) {
	withRole(t)
	t.Setenv("AWS_REGION", "eu-west-1") // an address of MSK contains it
	addr, ca := startMSK(t,
		awssdk.Credentials{AccessKeyID: "ASIAROLE", SecretAccessKey: "hush", SessionToken: "token-of-the-role"},
		awssdk.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret/of+a=key"})
	for _, tt := range []struct{ name, key, secret, refused string }{
		{"role of the environment", "", "", ""},
		{"key", "AKIDEXAMPLE", "secret/of+a=key", ""},
		{"wrong secret", "AKIDEXAMPLE", "canary", "the signature is wrong"},
		{"unknown key", "AKIDOTHER", "canary", "no key"},
	} {
		c := KafkaConfig{Seeds: []string{addr}, SASL: "aws-msk-iam", Username: tt.key, Password: tt.secret, tlsConfig: tlsConfig{TLS: true, TLSCA: ca}}
		client, err := c.Client()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), world.Patience)
		err = Reachable(ctx, client, c.Seeds)
		cancel()
		client.Close()
		if (err != nil) != (tt.refused != "") || err != nil && (!strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.refused)
		}
	}
}
