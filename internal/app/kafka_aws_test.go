//go:build cloud

package app

import (
	"strings"
	"testing"
)

// outbox-cloud signs with the credentials of the environment, which contain the token of a role.
func TestKafka_AWSMSKIAMOfTheEnvironment(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "ASIAROLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush")
	t.Setenv("AWS_SESSION_TOKEN", "token-of-the-role")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
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
