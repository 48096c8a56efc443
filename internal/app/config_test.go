package app

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/test/clitest"
)

// parseConfig returns the configuration of a file, an environment and flags.
func parseConfig(t *testing.T, yaml string, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	flags := func(cmd *cobra.Command) {
		AddFlags(cmd, slices.Concat([]string{SectionAdmin, SectionRelay, SectionSchema}, OrdersSections, MessagesSections)...)
	}
	return clitest.Config(t, LoadConfigFrom, flags, yaml, env, args...)
}

func TestConfig_FlagOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	file := "scylla:\n  hosts: [file1, file2]\n  keyspace: filekeys\nkafka:\n  seeds: file:9092\nrelay:\n  confidence_window: 7s\n"
	env := map[string]string{"OUTBOX_SCYLLA_HOSTS": "env1,env2", "OUTBOX_SCYLLA_KEYSPACE": "envkeys", "OUTBOX_SCYLLA_PASSWORD": "s3cret"}
	c, err := parseConfig(t, file, env, "--scylla-hosts", "flag1,flag2", "--relay-topic-partitions", "12")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"flag", c.Scylla.Hosts, []string{"flag1", "flag2"}},
		{"environment", c.Scylla.Keyspace, "envkeys"},
		{"environment secret", c.Scylla.Password, "s3cret"},
		{"file, one string for a list", c.Kafka.Seeds, []string{"file:9092"}},
		{"file, duration", c.Relay.ConfidenceWindow, 7 * time.Second},
		{"flag, number", c.Relay.Partitions, int32(12)},
		{"default", c.Messages.Addr, "127.0.0.1:8084"},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("%s: got %v, want %v", x.name, x.got, x.want)
		}
	}
}

func TestConfig_EverySettingReachesAField(t *testing.T) {
	t.Parallel()
	base, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings {
		if s.FileOnly() {
			continue
		}
		c, err := parseConfig(t, "", map[string]string{s.Env(): "not a value of any type"})
		switch s.Value().(type) {
		case string, []string:
			if err == nil && reflect.DeepEqual(c, base) {
				t.Errorf("%s: a value from %s changed nothing", s.Key, s.Env())
			}
		default:
			if err == nil || !strings.Contains(err.Error(), s.Key) {
				t.Errorf("%s: error = %v, want the name of the setting", s.Key, err)
			}
		}
	}
}

func TestConfig_NamesUnknownKeysAndBadValues(t *testing.T) {
	t.Parallel()
	_, err := parseConfig(t, "scylla:\n  host: a\nkafka:\n  seed: b\n", nil)
	if err == nil || !strings.Contains(err.Error(), `"scylla.host"`) || !strings.Contains(err.Error(), `"kafka.seed"`) {
		t.Errorf("error = %v, want both unknown keys named", err)
	}
	_, err = parseConfig(t, "", map[string]string{"OUTBOX_RELAY_ATTEMPT_TIMEOUT": "soon"})
	if err == nil || !strings.Contains(err.Error(), "attempt_timeout") {
		t.Errorf("error = %v, want it to name relay.attempt_timeout", err)
	}
	if _, err = parseConfig(t, "scylla: [", nil); err == nil || !strings.Contains(err.Error(), "outbox.yaml") {
		t.Errorf("error = %v, want it to name the file", err)
	}
}

func TestConfig_SecretsHaveNoFlag(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	AddFlags(cmd, SectionScylla, SectionKafka)
	for _, s := range Settings {
		if flag := strings.NewReplacer(".", "-", "_", "-").Replace(s.Key); s.Secret && cmd.Flags().Lookup(flag) != nil {
			t.Errorf("secret %s can be given as a flag, where every user of the machine sees it", s.Key)
		}
	}
}

// An unknown key is an error with the keys that are probably meant, also for a word of another
// section and for a part of a name. Without a likely one it lists the keys of the section.
func TestConfig_UnknownKeyNamesTheLikelyOne(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"relay: {shard: 8}":                      `did you mean "relay.shards"?`,
		"relay: {dedup_memory: 1}":               `did you mean "relay.dedup_memory_bytes"?`,
		"relay: {partitions: 3}":                 `did you mean "relay.topic_partitions"?`,
		"relay: {s: 3}":                          "there are relay.name, ",
		"relay: {a: 3}":                          "there are relay.name, ",
		"relay: {timeout: 3s}":                   `did you mean "relay.attempt_timeout" or "relay.session_timeout"?`,
		"relay: {addr: 'a:1'}":                   `did you mean "hints.addr", "messages.addr", "ops.addr" or "admin.addr"?`,
		"relay: {kafka_seeds: [a]}":              `did you mean "kafka.seeds"?`,
		"admin: {adr: 'off'}":                    `did you mean "admin.addr"?`,
		"admin: {address: 'off'}":                `did you mean "admin.addr"?`,
		"admin: {url: 'http://a'}":               `did you mean "admin.trace_url"?`,
		"admin: {listeners: 1}":                  "there are admin.addr, ",
		"http: {hsots: [a]}":                     `did you mean "http.hosts"?`,
		"http: {tls: true}":                      `did you mean "http.tls_cert" or "http.tls_key"?`,
		"http: {ops_addr: 'off'}":                `did you mean "ops.addr"?`,
		"http: {admin_addr: 'off'}":              `did you mean "admin.addr"?`,
		"http: {addr: 'a:1'}":                    `did you mean "hints.addr", "messages.addr", "ops.addr" or "admin.addr"?`,
		"kafka: {user: a}":                       `did you mean "kafka.username"?`,
		"kafka: {brokers: [a]}":                  "there are kafka.seeds, ",
		"kafka: {brokers_of_the_year: 1}":        "there are kafka.seeds, ",
		"api: {addr: 'a:1'}":                     `did you mean "hints.addr", "messages.addr", "ops.addr" or "admin.addr"?`,
		"scylla: {port: 9042}":                   "there are scylla.hosts, ",
		"scylla: {consistency: ONE}":             "there are scylla.hosts, ",
		"ops: {metrics_addr: 'off'}":             `did you mean "ops.addr"?`,
		"log: {lvl: debug}":                      `did you mean "log.level"?`,
		"log: {leval: debug}":                    `did you mean "log.level"?`,
		"notifications: {backlock: 1}":           "there are notifications.targets, ",
		"subscriptions: {push_targets: ['a=b']}": `did you mean "subscriptions.targets"?`,
		"adnim: {addr: 'off'}":                   `did you mean "admin"?`,
		"api2: {addr: 'off'}":                    `did you mean "api"?`,
		"messages_api: {addr: 'off'}":            `did you mean "messages"?`,
		"db: {addr: 'off'}":                      "there are scylla, kafka, ",
		"orders: {addr: 'off'}":                  "there are scylla, kafka, ",
		"relay: {hosts: [a]}":                    `did you mean "scylla.hosts" or "http.hosts"?`,
		"subscriptions: {tokens: ['a']}":         `did you mean "http.tokens" or "admin.tokens"?`,
	} {
		if _, err := parseConfig(t, file, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", file, err, want)
		}
	}
}

// A key that the command reads is suggested before one that only others read.
func TestConfig_UnknownKeyIsOneOfTheCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sections   []string
		file, want string
	}{
		{[]string{SectionSubscriptions, SectionOps}, "http: {addr: 'a:1'}", `did you mean "ops.addr" or "subscriptions.addr"?`},
		{[]string{SectionAdmin}, "http: {addr: 'a:1'}", `did you mean "admin.addr"?`},
		{[]string{SectionScylla}, "http: {addr: 'a:1'}", `did you mean "hints.addr", "messages.addr", "ops.addr", "admin.addr" or "subscriptions.addr"?`},
		{[]string{SectionScylla}, "relay: {shard: 1}", `did you mean "relay.shards"?`},
	} {
		flags := func(cmd *cobra.Command) { AddFlags(cmd, c.sections...) }
		if _, err := clitest.Config(t, LoadConfigFrom, flags, c.file, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %v: error = %v, want %q", c.file, c.sections, err, c.want)
		}
	}
}

// The address of the metrics and that of the admin API are settings of two sections, and no
// setting of one API has the name of another.
func TestSettings_AddressesBelongToOneListener(t *testing.T) {
	t.Parallel()
	var got []string
	for _, f := range Settings {
		if strings.HasSuffix(f.Key, ".addr") {
			got = append(got, f.Key)
		}
	}
	slices.Sort(got)
	if want := []string{"admin.addr", "hints.addr", "messages.addr", "ops.addr", "subscriptions.addr"}; !slices.Equal(got, want) {
		t.Errorf("the addresses are %q, want %q", got, want)
	}
}

// Brokers without a host or with no port number are refused before anything connects.
func TestKafkaConfig_RefusesSeeds(t *testing.T) {
	t.Parallel()
	for seed, want := range map[string]string{
		"localhost:99999": "the port must be a number from 1 to 65535", "localhost:0": "the port must be", "localhost:kafka": "the port must be", ":9092": "names no host", "a:b:c": "is neither",
		"localhost": "", "localhost:9092": "", "[::1]:9092": "", "::1": "", "[::1]": "",
	} {
		c := KafkaConfig{Seeds: []string{"ok:9092", seed}}
		_, err := c.Options()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "kafka.seeds")) {
			t.Errorf("kafka.seeds with %q: %v, want %q", seed, err, want)
		}
	}
}
