package app

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func TestKafka_SASLSettingsThatContradict(t *testing.T) {
	t.Parallel()
	const login = "kafka: {username: relay, password: hush, "
	for file, want := range map[string]string{
		login + "sasl: oauthbearer, token_url: https://x.example/token}":                        "kafka.tls",
		login + "sasl: oauthbearer, tls: true}":                                                 "kafka.token_url",
		login + "sasl: oauthbearer, tls: true, token_url: http://x.example/token}":              "kafka.token_url",
		login + "sasl: oauthbearer, tls: true, token_url: x.example}":                           "kafka.token_url",
		login + "sasl: plain, token_url: https://x.example/token}":                              "kafka.token_url",
		login + "sasl: scram-sha-256, token_scopes: [a]}":                                       "kafka.token_scopes",
		login + "sasl: aws-msk-iam}":                                                            "kafka.tls",
		"kafka: {sasl: aws-msk-iam, tls: true}":                                                 "outbox-cloud",
		"kafka: {sasl: aws-msk-iam, tls: true, password: hush}":                                 "kafka.username",
		"kafka: {sasl: oauthbearer, tls: true, token_url: https://x.example}":                   "kafka.username",
		login + "sasl: kerberos}":                                                               "aws-msk-iam",
		login + "sasl: aws-msk-iam, tls: true}":                                                 "",
		login + "sasl: oauthbearer, tls: true, token_url: 'https://x.example/t', rack: zone-1}": "",
		login + "sasl: oauthbearer, tls: true, token_url: 'http://127.0.0.1:1/t'}":              "",
	} {
		if awsCredentials != nil && want == "outbox-cloud" {
			continue
		}
		c, err := parseConfig(t, file, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Kafka.Options()
		switch {
		case want == "":
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		case err == nil || !errors.As(err, new(cli.UsageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: %v, want an error of usage that names %s", file, err, want)
		}
	}
}

// A client requests one token by the client credentials grant, uses it for every connection
// until it expires, and then requests another one.
func TestKafka_OAuthBearer(t *testing.T) {
	t.Parallel()
	var requests, lifetime atomic.Int64
	var form atomic.Pointer[url.Values]
	lifetime.Store(3600)
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "relay" || password != "hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		form.Store(&r.PostForm)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "token-" + string('0'+rune(requests.Add(1))), "token_type": "Bearer", "expires_in": lifetime.Load()})
	}))
	t.Cleanup(idp.Close)
	c := KafkaConfig{SASL: "OAUTHBEARER", Username: "relay", Password: "hush", TokenURL: idp.URL, Scopes: []string{"kafka", "topics"}, tlsConfig: tlsConfig{TLS: true}}
	m, err := c.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	first := func() string {
		t.Helper()
		_, b, err := m.Authenticate(t.Context(), "broker:9093")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const want = "n,,\x01auth=Bearer token-1\x01\x01" // RFC 7628, section 3.1
	if got := first() + first(); got != want+want {
		t.Errorf("two connections sent %q, want %q twice", got, want)
	}
	if got := form.Load(); got.Get("grant_type") != "client_credentials" || got.Get("scope") != "kafka topics" {
		t.Errorf("the endpoint received %v, want the client credentials grant with both scopes", got)
	}

	// A token that has expired is not used again.
	lifetime.Store(1) // less than the time that a token must still be valid
	c.Scopes = nil
	if m, err = c.mechanism(); err != nil {
		t.Fatal(err)
	}
	if a, b := first(), first(); a == b {
		t.Errorf("two connections sent %q, want another token after the first expired", a)
	}

	c.Password = "wrong-hush"
	if m, err = c.mechanism(); err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Authenticate(t.Context(), "broker:9093")
	if err == nil || !strings.Contains(err.Error(), idp.URL) || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "wrong-hush") {
		t.Errorf("a refused request is reported as %v, want the endpoint and its status without the secret", err)
	}
}

// signedForMSK returns the request of a mechanism to a broker in eu-west-1, and its text.
func signedForMSK(t *testing.T, m sasl.Mechanism) (signed map[string]string, text []byte) {
	t.Helper()
	_, text, err := m.Authenticate(t.Context(), "b-1.example.abc.kafka.eu-west-1.amazonaws.com:9098")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &signed); err != nil {
		t.Fatal(err)
	}
	return signed, text
}

// The request of AWS MSK IAM is signed: it contains the id of the key and not the key.
func TestKafka_AWSMSKIAM(t *testing.T) {
	t.Parallel()
	m, err := KafkaConfig{SASL: "aws-msk-iam", Username: "AKIDEXAMPLE", Password: "hush", tlsConfig: tlsConfig{TLS: true}}.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	if m.Name() != "AWS_MSK_IAM" {
		t.Errorf("mechanism %s, want AWS_MSK_IAM", m.Name())
	}
	signed, b := signedForMSK(t, m)
	if !strings.Contains(signed["x-amz-credential"], "AKIDEXAMPLE/") || !strings.Contains(signed["x-amz-credential"], "/eu-west-1/kafka-cluster/") || strings.Contains(string(b), "hush") {
		t.Errorf("the request is %s, want one signed for the broker's region", b)
	}
}

func TestKafka_Rack(t *testing.T) {
	t.Parallel()
	c := KafkaConfig{Seeds: []string{"127.0.0.1:1"}, Rack: "zone-1"}
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if got := client.OptValue(kgo.Rack); got != "zone-1" {
		t.Errorf("rack %v, want zone-1", got)
	}
}
