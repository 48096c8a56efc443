package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
)

var kafkaProperties = template.Must(template.New("server.properties").Parse(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{.InnerPort}}
{{with .Secure}}listeners=SASL_SSL://127.0.0.1:{{$.Port}},PLAINTEXT://127.0.0.1:{{$.PlainPort}},CONTROLLER://127.0.0.1:{{$.InnerPort}}
advertised.listeners=SASL_SSL://127.0.0.1:{{$.Port}},PLAINTEXT://127.0.0.1:{{$.PlainPort}}
ssl.keystore.type=PEM
ssl.keystore.location={{.Keystore}}
ssl.truststore.type=PEM
ssl.truststore.location={{.Truststore}}
listener.name.sasl_ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{{.User}}="{{.Password}}"{{range .Others}} user_{{.}}="{{$.Secure.Password}}"{{end}};
{{if .Others}}authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{{.User}}{{end}}
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
{{else}}listeners=PLAINTEXT://127.0.0.1:{{.Port}},CONTROLLER://127.0.0.1:{{.InnerPort}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{.Port}}
{{end}}inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={{.Dir}}/data
num.partitions=6
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
`))

// kafkaClusterID is the id that a broker's data directory is formatted with.
const kafkaClusterID = "MkU3OEVBNTcwNTJENDM2Qg"

// Kafka starts an Apache Kafka broker (KRaft, one node) and returns when it
// accepts connections. The caller stops it. A broker that starts on the Dir of
// an earlier one must be given its Port too.
func Kafka(ctx context.Context, cfg Config) (*Process, error) {
	s, err := newSetup("kafka", cfg)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, kafkaProperties); err != nil {
		return nil, err
	}
	classes := filepath.Join(s.libs, "*")
	if _, err := os.Stat(filepath.Join(s.Dir, "data", "meta.properties")); err != nil {
		args := []string{"-cp", classes, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", s.file}
		if u := s.Secure; u != nil {
			for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
				args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, u.User, u.Password))
			}
		}
		if out, err := exec.CommandContext(ctx, "java", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format the data directory of kafka: %w\n%s", err, out)
		}
	}
	return java(ctx, s, "-cp", classes, "kafka.Kafka", s.file)
}
