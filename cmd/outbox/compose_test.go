package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// composeFile is the part of docker-compose.yml that the tests read.
type composeFile struct {
	Services map[string]struct {
		Image       string            `yaml:"image"`
		Profiles    []string          `yaml:"profiles"`
		Restart     string            `yaml:"restart"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Ports       []string          `yaml:"ports"`
		ReadOnly    bool              `yaml:"read_only"`
		CapDrop     []string          `yaml:"cap_drop"`
		SecurityOpt []string          `yaml:"security_opt"`
		Healthcheck struct {
			Test []string `yaml:"test"`
		} `yaml:"healthcheck"`
	} `yaml:"services"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f composeFile
	// Without variables of the user's the defaults apply.
	text = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`).ReplaceAll(text, []byte("$1"))
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// All services are there again after a restart of the machine, which none survives without
// restart; the migration alone ends. None waits for a profile.
func TestCompose_ServicesComeBack(t *testing.T) {
	t.Parallel()
	for name, service := range readCompose(t).Services {
		want := "unless-stopped"
		if name == "migrate" {
			want = "on-failure"
		}
		if service.Restart != want || len(service.Profiles) > 0 {
			t.Errorf("%s: restart is %q, want %q; its profiles are %v", name, service.Restart, want, service.Profiles)
		}
	}
}

// Commands on the host reach the engines at the default addresses, like the commands of make dev.
func TestCompose_HostCommandsNeedNoSettings(t *testing.T) {
	t.Parallel()
	c, err := parseConfig(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	services := readCompose(t).Services
	scylla, kafka := c.Scylla.Addresses(), strings.Join(c.Kafka.Seeds, ",")
	if got := services["scylla"].Ports; !slices.Equal(got, []string{scylla + ":9042"}) {
		t.Errorf("ScyllaDB is published as %v; the default of commands is %s", got, scylla)
	}
	if got := services["redpanda"].Ports; !slices.Equal(got, []string{kafka + ":19092"}) {
		t.Errorf("Redpanda is published as %v; the default of commands is %s", got, kafka)
	}
	for _, flag := range []string{"--kafka-addr=internal://0.0.0.0:9092,external://0.0.0.0:19092", "--advertise-kafka-addr=internal://redpanda:9092,external://" + kafka} {
		if command := services["redpanda"].Command; !slices.Contains(command, flag) {
			t.Errorf("Redpanda starts with %q, want %s", command, flag)
		}
	}
}

// The token of the link in the file is that of an administrator unless the user has an own one.
func TestCompose_ConsoleHasAToken(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`http://127\.0\.0\.1:8090/console/#token=(\S+?)\.?\s`).FindSubmatch(text)
	if link == nil {
		t.Fatal("docker-compose.yml has no link to the console")
	}
	tokens := composeConfig(t, "admin").Admin.Tokens
	if want := fmt.Sprintf("demo:admin:sha256:%x", sha256.Sum256(link[1])); len(tokens) != 1 || fmt.Sprint(tokens[0]) != want {
		t.Errorf("the tokens are %v, want %s", tokens, want)
	}
	if ports := readCompose(t).Services["admin"].Ports; !slices.Equal(ports, []string{"127.0.0.1:8090:8090"}) {
		t.Errorf("a console with a known token is published as %v", ports)
	}
}

// A build of the image downloads the product's dependencies once, and compiles only changed
// packages: no frontend of another registry, no layer with all modules, and no file whose change
// does not matter.
func TestCompose_BuildIsIncremental(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	file := read("Dockerfile")
	if strings.Contains(file, "syntax=") || strings.Contains(file, "mod download") {
		t.Errorf("the Dockerfile fetches a frontend or all modules:\n%s", file)
	}
	for _, cache := range []string{"/go/pkg/mod", "/root/.cache/go-build"} {
		if !regexp.MustCompile(`(?s)RUN [^\n]*--mount=type=cache,target=` + cache + `\b[^\n]*\\\n[^\n]*go build`).MatchString(file) {
			t.Errorf("the build has no cache at %s:\n%s", cache, file)
		}
	}
	ignored := strings.Split(read(".dockerignore"), "\n")
	for _, name := range []string{".*", "**/*.md", "**/*_test.go", "bin", "dist", "docs", "test", "docker-compose.yml"} {
		if !slices.Contains(ignored, name) {
			t.Errorf(".dockerignore has no %s", name)
		}
	}
}

// composeConfig is the configuration of one of the file's services.
func composeConfig(t *testing.T, name string) *app.Config {
	t.Helper()
	service := readCompose(t).Services[name]
	cmd := &cobra.Command{}
	app.AddFlags(cmd)
	c, err := app.LoadConfigFrom("", func(k string) (string, bool) { v, ok := service.Environment[k]; return v, ok }, cmd.Flags())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// The APIs of docker-compose.yml have no tokens and listen beyond the loopback of their
// containers, so they must refuse the host names of pages that use DNS rebinding.
func TestCompose_APIsRefuseForeignHosts(t *testing.T) {
	t.Parallel()
	orders := readCompose(t).Services["orders"].Command
	for name, addr := range map[string]string{"orders": orders[slices.Index(orders, "--orders-addr")+1], "messages": composeConfig(t, "messages").Messages.Addr} {
		c := composeConfig(t, name)
		if len(c.HTTP.Tokens) > 0 {
			t.Fatal("docker-compose.yml has tokens; this test is about an API without")
		}
		hosts, err := c.HTTP.AllowedHosts(addr)
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]bool{
			"127.0.0.1:8080": true, "localhost:8080": true, name + ":8080": true, "172.18.0.4:8080": true,
			"evil.example:8080": false, "relay:8080": false, "0.0.0.0.evil.example": false,
		} {
			if got := hosts.Allow(host); got != want {
				t.Errorf("%s: Allow(%q) = %t, want %t", name, host, got, want)
			}
		}
	}
}

// Each target of Prometheus is a service of docker-compose.yml. A process of the project
// listens where Prometheus expects its ops listener, and allows the host name that
// Prometheus sends.
func TestCompose_PrometheusTargets(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/prometheus/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	type static struct {
		Static []struct{ Targets []string } `yaml:"static_configs"`
	}
	var f struct {
		Jobs     []static `yaml:"scrape_configs"`
		Alerting struct{ Alertmanagers []static }
	}
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	found, services := 0, readCompose(t).Services
	for _, job := range append(f.Jobs, f.Alerting.Alertmanagers...) {
		for _, static := range job.Static {
			for _, target := range static.Targets {
				name, port, err := net.SplitHostPort(target)
				if err != nil {
					t.Fatal(err)
				}
				service, ok := services[name]
				if !ok {
					t.Errorf("target %s is no service of docker-compose.yml", target)
				}
				if service.Image != "scylla-outbox" {
					continue
				}
				found++
				c := composeConfig(t, name)
				hosts, err := access.NewHosts(c.Ops.Addr, c.HTTP.Hosts)
				if err != nil || c.Ops.Addr != "0.0.0.0:"+port || !hosts.Allow(target) || hosts.Allow("rebound.example") {
					t.Errorf("target %s: the process listens on %s for the hosts %v, %v", target, c.Ops.Addr, c.HTTP.Hosts, err)
				}
			}
		}
	}
	if found != 5 {
		t.Errorf("found %d targets, want 5", found)
	}
}

// Prometheus of docker-compose.yml stores the exemplars and the native histograms of the
// processes, and the classic buckets that the dashboard uses.
func TestCompose_PrometheusStoresHistogramsAndExemplars(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/prometheus/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Global struct {
			Native  bool `yaml:"scrape_native_histograms"`
			Classic bool `yaml:"always_scrape_classic_histograms"`
		} `yaml:"global"`
	}
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	command := readCompose(t).Services["prometheus"].Command
	if !f.Global.Native || !f.Global.Classic || !slices.Contains(command, "--enable-feature=exemplar-storage") {
		t.Errorf("native histograms %t, classic ones %t, flags %q", f.Global.Native, f.Global.Classic, command)
	}
	// The flags of the file replace the flags of the image.
	for _, flag := range []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"} {
		if !slices.Contains(command, flag) {
			t.Errorf("the flags %q have no %s", command, flag)
		}
	}
}

// Every variable of docker-compose.yml that begins as a setting's is a setting's.
func TestCompose_NamesSettings(t *testing.T) {
	t.Parallel()
	for name, service := range readCompose(t).Services {
		for variable := range service.Environment {
			if slices.Contains(app.Settings.Strangers([]string{variable + "="}), variable) {
				t.Errorf("%s: %s is the variable of no setting", name, variable)
			}
		}
	}
}

// Redpanda of docker-compose.yml refuses topics that nobody created.
func TestCompose_TopicsAreNotCreatedByName(t *testing.T) {
	t.Parallel()
	command := readCompose(t).Services["redpanda"].Command
	if !slices.Contains(command, "--set=redpanda.auto_create_topics_enabled=false") ||
		slices.ContainsFunc(command, func(arg string) bool { return strings.HasPrefix(arg, "--mode") }) {
		t.Errorf("redpanda starts with %q, want auto_create_topics_enabled=false, and no mode, which changes it", command)
	}
}

// Each long-running process of docker-compose.yml is checked by outbox health with its own
// command. No container gains privileges; every one but the engines has a read-only file system
// and no capability, and of the engines ScyllaDB alone, which starts as root, has capabilities.
func TestCompose_HealthAndConfinement(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, service := range readCompose(t).Services {
		engine, root := name == "scylla" || name == "redpanda", name == "scylla"
		if !engine && !service.ReadOnly || !root && !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Contains(service.CapDrop, "NET_RAW") && root ||
			!slices.Equal(service.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: read_only %t, cap_drop %v, security_opt %v", name, service.ReadOnly, service.CapDrop, service.SecurityOpt)
		}
		if service.Image != "scylla-outbox" || name == "migrate" {
			continue
		}
		checked++
		command := service.Command
		if i := slices.IndexFunc(command, func(arg string) bool { return strings.HasPrefix(arg, "--") }); i >= 0 {
			command = command[:i]
		}
		if want := append([]string{"CMD", "/outbox", "health"}, command...); !slices.Equal(service.Healthcheck.Test, want) {
			t.Errorf("%s: its health check is %q, want %q", name, service.Healthcheck.Test, want)
		}
	}
	if checked != 5 {
		t.Errorf("checked %d services, want 5", checked)
	}
}
