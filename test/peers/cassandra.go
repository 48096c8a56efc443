package peers

import (
	"context"
	"path/filepath"
	"text/template"
)

var cassandraYAML = template.Must(template.New("cassandra.yaml").Parse(`cluster_name: peers
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: periodic
commitlog_sync_period: 10000ms
data_file_directories: ["{{.Dir}}/data/sstables"]
commitlog_directory: "{{.Dir}}/data/commitlog"
saved_caches_directory: "{{.Dir}}/data/caches"
hints_directory: "{{.Dir}}/data/hints"
cdc_raw_directory: "{{.Dir}}/data/cdc"
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: {{.Port}}
storage_port: {{.InnerPort}}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "127.0.0.1:{{.InnerPort}}"}]
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
materialized_views_enabled: true
auto_snapshot: false
# A busy machine is to be waited for, as the tests do.
request_timeout: 300000ms
read_request_timeout: 300000ms
range_request_timeout: 300000ms
write_request_timeout: 300000ms
counter_write_request_timeout: 300000ms
cas_contention_timeout: 300000ms
truncate_request_timeout: 300000ms
`))

// cassandraOpens are the parts of the JDK that Cassandra reaches into.
var cassandraOpens = []string{
	"java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref",
	"java.base/jdk.internal.reflect", "java.base/jdk.internal.math", "java.base/jdk.internal.module",
	"java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "java.base/java.io", "java.base/java.lang",
	"java.base/java.lang.reflect", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
	"java.base/java.util.concurrent.atomic", "jdk.management/com.sun.management.internal",
}

var cassandraExports = []string{
	"java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref",
	"java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
	"java.sql/java.sql", "jdk.unsupported/sun.misc",
}

// Cassandra starts an Apache Cassandra node and returns when it accepts CQL
// connections, which takes about 12 s. The caller stops it.
func Cassandra(ctx context.Context, cfg Config) (*Process, error) {
	s, err := newSetup("cassandra", cfg)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, cassandraYAML); err != nil {
		return nil, err
	}
	args := []string{
		"-Dcassandra.config=file://" + s.file, "-Dcassandra.storagedir=" + filepath.Join(s.Dir, "data"),
		"-Dcassandra-foreground=yes", "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=100",
		"-Djdk.attach.allowAttachSelf=true",
		// Schema changes need not survive a crash of the machine, and may be quick.
		"-Dcassandra.unsafesystem=true", "-XX:TieredStopAtLevel=1",
	}
	for _, m := range cassandraExports {
		args = append(args, "--add-exports", m+"=ALL-UNNAMED")
	}
	for _, m := range cassandraOpens {
		args = append(args, "--add-opens", m+"=ALL-UNNAMED")
	}
	args = append(args, "-cp", filepath.Join(s.libs, "*"), "org.apache.cassandra.service.CassandraDaemon")
	return java(ctx, s, args...)
}
