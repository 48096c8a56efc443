//go:build cloud

package app

import (
	"context"
	"fmt"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

func init() { awsCredentials = environmentCredentials }

// awsConfig is the configuration of the AWS SDK, which keeps the credentials of a role until
// they expire.
var awsConfig = sync.OnceValues(func() (awssdk.Config, error) {
	return config.LoadDefaultConfig(context.Background())
})

// environmentCredentials returns the credentials of the AWS SDK's default chain.
func environmentCredentials(ctx context.Context) (aws.Auth, error) {
	conf, err := awsConfig()
	if err != nil {
		return aws.Auth{}, fmt.Errorf("load the AWS configuration of the environment: %w", err)
	}
	creds, err := conf.Credentials.Retrieve(ctx)
	if err != nil {
		return aws.Auth{}, fmt.Errorf("read the AWS credentials of the environment: %w", err)
	}
	return aws.Auth{AccessKey: creds.AccessKeyID, SecretKey: creds.SecretAccessKey, SessionToken: creds.SessionToken}, nil
}
