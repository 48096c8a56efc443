package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
)

var kafkaProperties = template.Must(template.New("server.properties").Parse(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{.ControllerPort}}
listeners=PLAINTEXT://127.0.0.1:{{.Port}},CONTROLLER://127.0.0.1:{{.ControllerPort}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{.Port}}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={{.Dir}}/data
num.partitions=6
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
`))

// kafkaClusterID is the id that a broker's data directory is formatted with.
const kafkaClusterID = "MkU3OEVBNTcwNTJENDM2Qg"

// Kafka starts an Apache Kafka broker (KRaft, one node) and returns when it
// accepts connections. The caller stops it. A broker that starts on the Dir of
// an earlier one must be given its Port too.
func Kafka(ctx context.Context, cfg Config) (*Process, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	libs, err := jars(ctx, cfg.Cache, "kafka")
	if err != nil {
		return nil, err
	}
	temporary, err := directory("kafka", &cfg)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	if cfg.Port == 0 {
		cfg.Port = ports[0]
	}
	properties := filepath.Join(cfg.Dir, "server.properties")
	f, err := os.Create(properties)
	if err != nil {
		return nil, err
	}
	err = kafkaProperties.Execute(f, struct {
		Dir                  string
		Port, ControllerPort int
	}{cfg.Dir, cfg.Port, ports[1]})
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("write %s: %w", properties, err)
	}
	classes := filepath.Join(libs, "*")
	if _, err := os.Stat(filepath.Join(cfg.Dir, "data", "meta.properties")); err != nil {
		format := exec.CommandContext(ctx, "java", "-cp", classes, "kafka.tools.StorageTool",
			"format", "-t", kafkaClusterID, "-c", properties)
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("format the data directory of kafka: %w\n%s", err, out)
		}
	}
	return java(ctx, "kafka", cfg, cfg.Port, temporary, "-cp", classes, "kafka.Kafka", properties)
}
