package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// The values of kafka.sasl, and their list in errors.
const (
	saslOAuth  = "oauthbearer"
	saslAWS    = "aws-msk-iam"
	mechanisms = "plain, scram-sha-256, scram-sha-512, " + saslOAuth + " or " + saslAWS
)

// awsCredentials returns the AWS credentials of the environment: variables, shared files, the
// role of a pod, a container or a machine. It is nil in a build without the tag cloud.
var awsCredentials func(context.Context) (aws.Auth, error)

// mechanism returns the SASL mechanism of the settings, nil for none. Errors are of usage.
func (c KafkaConfig) mechanism() (sasl.Mechanism, error) {
	name := strings.ToLower(c.SASL)
	if err := c.checkSASL(name); err != nil {
		return nil, cli.Usage(err)
	}
	switch name {
	case "plain":
		return plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha512Mechanism(), nil
	case saslOAuth:
		return c.bearer(), nil
	case saslAWS:
		if c.Username == "" {
			return aws.ManagedStreamingIAM(awsCredentials), nil
		}
		return aws.Auth{AccessKey: c.Username, SecretKey: c.Password}.AsManagedStreamingIAMMechanism(), nil
	}
	return nil, nil
}

// checkSASL reports settings that contradict each other or would send a secret in clear.
func (c KafkaConfig) checkSASL(name string) error {
	if name != saslOAuth && (c.TokenURL != "" || len(c.Scopes) > 0) {
		return errors.New("kafka.token_url or kafka.token_scopes is set and kafka.sasl is not " + saslOAuth + ": set it, or remove them")
	}
	switch name {
	case "":
		if c.Username+c.Password != "" {
			return errors.New("kafka.username or kafka.password is set and kafka.sasl is not: set kafka.sasl to " + mechanisms)
		}
		return nil
	case "plain", "scram-sha-256", "scram-sha-512":
	case saslOAuth, saslAWS:
		if !c.TLS {
			// RFC 7628, section 4; MSK has no listener for IAM without TLS.
			return fmt.Errorf("kafka.sasl %s requires TLS: set kafka.tls", name)
		}
	default:
		return fmt.Errorf("kafka.sasl %q: use "+mechanisms, c.SASL)
	}
	if name == saslAWS && c.Username == "" && c.Password == "" {
		if awsCredentials == nil {
			return errors.New("kafka.sasl " + saslAWS + " without kafka.username requires outbox-cloud, which reads the credentials of the environment; this build needs kafka.username, the access key id, and kafka.password")
		}
		return nil
	}
	if c.Username == "" {
		return errors.New("kafka.sasl is set and kafka.username is not: set both or none")
	}
	if name == saslOAuth {
		return checkTokenURL(c.TokenURL)
	}
	return nil
}

// checkTokenURL refuses an endpoint that would receive the client secret in clear.
func checkTokenURL(text string) error {
	if u, err := url.Parse(text); err == nil && u.Host != "" && access.Private(u) {
		return nil
	}
	return fmt.Errorf("kafka.token_url %q: kafka.sasl %s needs the https URL of a token endpoint, such as https://login.example.com/oauth2/token", text, saslOAuth)
}

// tokenTimeout bounds a request for a token.
const tokenTimeout = 10 * time.Second

// bearer returns OAUTHBEARER (RFC 7628) with tokens of the client credentials grant (RFC 6749,
// section 4.4). A token is requested with the first connection, and again with the first one
// after it has expired.
func (c KafkaConfig) bearer() sasl.Mechanism {
	conf := clientcredentials.Config{ClientID: c.Username, ClientSecret: c.Password, TokenURL: c.TokenURL, Scopes: c.Scopes}
	// The source keeps this context, so it is not that of a connection.
	tokens := conf.TokenSource(context.WithValue(context.Background(), oauth2.HTTPClient, &http.Client{Timeout: tokenTimeout}))
	return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
		token, err := tokens.Token()
		if err != nil {
			return oauth.Auth{}, fmt.Errorf("request a token for Kafka from %s: %w", c.TokenURL, err)
		}
		return oauth.Auth{Token: token.AccessToken}, nil
	})
}
