// Package deploy renders the Helm chart, checks its objects, and writes the kustomize base.
// make compose-check validates the base; make kubernetes does the same with Helm itself.
package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

var update = flag.Bool("update", false, "write the files of the kustomize base")

// folder is the one of the chart and of the kustomize base.
const folder = "../../deploy/kubernetes"

// object is an object of Kubernetes.
type object = map[string]any

// render executes a template of the chart as Helm does for the release outbox. It has the
// functions that the chart uses, so another function is an error here; make kubernetes compares
// the results with the output of Helm.
func render(t *testing.T, file string, set func(values object)) string {
	t.Helper()
	chart := filepath.Join(folder, "chart")
	var values object
	unmarshal(t, filepath.Join(chart, "values.yaml"), &values)
	if set != nil {
		set(values)
	}
	var meta struct {
		Name       string `yaml:"name"`
		AppVersion string `yaml:"appVersion"`
	}
	unmarshal(t, filepath.Join(chart, "Chart.yaml"), &meta)
	tmpl := template.New("chart").Option("missingkey=error")
	indent := func(n int, s string) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n)) }
	tmpl.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := tmpl.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			var b bytes.Buffer
			e := yaml.NewEncoder(&b)
			e.SetIndent(2)
			e.CompactSeqIndent() // as Helm's
			err := e.Encode(v)
			return strings.TrimSuffix(b.String(), "\n"), err
		},
		"nindent": func(n int, s string) string { return indent(n, "\n"+s) },
		"quote":   func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"kindIs":  func(kind string, v any) bool { return reflect.TypeOf(v).Kind().String() == kind },
		"toJson": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
		"trunc":     func(n int, s string) string { return s[:n] },
		"sha256sum": func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) },
		"default": func(otherwise, v string) string {
			if v == "" {
				return otherwise
			}
			return v
		},
	})
	for _, name := range []string{"_helpers.tpl", file} {
		if _, err := tmpl.New(name).Parse(read(t, filepath.Join(chart, "templates", name))); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	err := tmpl.ExecuteTemplate(&b, file, object{
		"Values": values, "Release": object{"Name": "outbox", "Namespace": "shop"}, "Chart": object{"Name": meta.Name, "AppVersion": meta.AppVersion}, "Files": files{t, chart},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimLeft(b.String(), "\n")
}

// files are the files of the chart.
type files struct {
	t   *testing.T
	dir string
}

// Get returns the content of a file.
func (f files) Get(name string) string { return read(f.t, filepath.Join(f.dir, name)) }

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func unmarshal(t *testing.T, file string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// parse returns the objects of a file with several.
func parse(t *testing.T, text string) (all []object) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// everything enables what needs operators in the cluster.
func everything(values object) {
	values["monitoring"].(object)["enabled"] = true
	values["keda"].(object)["enabled"] = true
}

// The chart has no Secret where the user has one, and the operators' objects on request only.
func TestChart_ObjectsOnRequest(t *testing.T) {
	t.Parallel()
	count := func(set func(values object)) map[string]int {
		got := map[string]int{}
		for _, file := range []string{"outbox.yaml", "monitoring.yaml", "keda.yaml"} {
			for _, o := range parse(t, render(t, file, set)) {
				got[o["kind"].(string)]++
			}
		}
		return got
	}
	want := map[string]int{"Secret": 1, "ServiceAccount": 1, "Job": 1, "Deployment": 4, "PodDisruptionBudget": 4, "Service": 3, "NetworkPolicy": 4}
	if got := count(nil); !maps.Equal(got, want) {
		t.Errorf("the chart has %v, want %v", got, want)
	}
	withOrders := func(values object) { values["components"].(object)["orders"].(object)["enabled"] = true }
	if got := count(withOrders); got["Deployment"] != 5 || got["Service"] != 4 {
		t.Errorf("with the example, the chart has %v", got)
	}
	for asked, set := range map[bool]func(object){false: nil, true: withOrders} {
		if text := render(t, "outbox.yaml", set); strings.Contains(text, `--components, "schedule,subscriptions,orders"`) != asked || strings.Contains(text, "orders") != asked {
			t.Errorf("with the example %v, the chart has its tables and processes otherwise:\n%s", asked, text)
		}
	}
	want["PodMonitor"], want["PrometheusRule"], want["ScaledObject"] = 1, 1, 1
	if got := count(everything); !maps.Equal(got, want) {
		t.Errorf("with the operators' objects, the chart has %v, want %v", got, want)
	}
	if got := count(func(values object) { values["existingSecret"] = "mine" }); got["Secret"] > 0 {
		t.Errorf("with a Secret of the user, the chart has %v", got)
	}
}

// What a platform adds to its pods is in all of them, the Job's too.
func TestChart_PodsOfAPlatform(t *testing.T) {
	t.Parallel()
	objects := parse(t, render(t, "outbox.yaml", func(values object) {
		values["imagePullSecrets"] = []any{object{"name": "registry"}}
		values["serviceAccount"].(object)["annotations"] = object{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/outbox"}
		values["nodeSelector"] = object{"pool": "events"}
		values["tolerations"] = []any{object{"key": "events", "operator": "Exists"}}
		values["volumes"] = []any{object{"name": "secrets", "csi": object{"driver": "secrets-store.csi.k8s.io"}}}
		values["volumeMounts"] = []any{object{"name": "secrets", "mountPath": "/secrets"}}
		values["components"].(object)["relay"].(object)["resources"] = object{"limits": object{"memory": "1Gi"}}
		values["networkPolicy"].(object)["clientNamespaces"] = []any{"ingress"}
	}))
	pods, policies := 0, 0
	for _, o := range objects {
		switch o["kind"] {
		case "ServiceAccount":
			if got := fmt.Sprint(o["metadata"].(object)["annotations"]); got != "map[eks.amazonaws.com/role-arn:arn:aws:iam::1:role/outbox]" {
				t.Errorf("the ServiceAccount has the annotations %s", got)
			}
		case "NetworkPolicy":
			if text := fmt.Sprint(o["spec"]); strings.Contains(text, "port:api") {
				policies++
				if !strings.Contains(text, "namespaceSelector:map[matchLabels:map[kubernetes.io/metadata.name:ingress]] podSelector:map[matchLabels:map[scylla-outbox/client:true]]") {
					t.Errorf("%v does not admit labelled pods of the namespace ingress: %s", o["metadata"], text)
				}
			}
		case "Deployment", "Job":
			pods++
			pod := o["spec"].(object)["template"].(object)["spec"].(object)
			text := fmt.Sprint(pod)
			for _, want := range []string{"imagePullSecrets:[map[name:registry]]", "nodeSelector:map[pool:events]", "key:events operator:Exists", "driver:secrets-store.csi.k8s.io", "mountPath:/secrets"} {
				if !strings.Contains(text, want) {
					t.Errorf("the pods of %v lack %s: %s", o["metadata"], want, text)
				}
			}
			container := pod["containers"].([]any)[0].(object)
			if own := strings.Contains(fmt.Sprint(container["resources"]), "memory:1Gi"); own != (container["name"] == "relay") {
				t.Errorf("%v has the resources %v", container["name"], container["resources"])
			}
		}
	}
	if pods != 5 || policies != 3 {
		t.Errorf("found %d kinds of pods and %d policies of APIs, want 5 and 3", pods, policies)
	}
}

// Helm checks values by the schema of the chart: it accepts the defaults, and no misspelled key.
func TestChart_Schema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(folder, "chart", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		set     func(object)
		refused string
	}{
		"the defaults":                {func(object) {}, ""},
		"settings of the processes":   {func(v object) { v["config"].(object)["relay"].(object)["spill_limit"] = 1 }, ""},
		"a misspelled value":          {func(v object) { v["existingSecrets"] = "mine" }, "existingSecrets"},
		"a misspelled value of one":   {func(v object) { v["components"].(object)["relay"].(object)["replica"] = 3 }, "replica"},
		"a text instead of a number":  {func(v object) { v["components"].(object)["relay"].(object)["replicas"] = "3" }, "replicas"},
		"a component that is unknown": {func(v object) { v["components"].(object)["relays"] = object{} }, "relays"},
	} {
		var values object
		unmarshal(t, filepath.Join(folder, "chart", "values.yaml"), &values)
		tt.set(values)
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		err = schema.Validate(plain)
		if (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The notes after an installation name the installed parts and the next steps.
func TestChart_Notes(t *testing.T) {
	t.Parallel()
	notes := render(t, "NOTES.txt", nil)
	for _, want := range []string{
		"scylla-outbox 0.1.0 is installed as outbox in the namespace shop", "relay × 2\n", "admin × 1: http://outbox-admin.shop.svc:8090",
		"kubectl -n shop port-forward service/outbox-admin 8090", `scylla-outbox/client: "true"`, "monitoring.enabled adds",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	if notes := render(t, "NOTES.txt", everything); strings.Contains(notes, "Nothing watches") {
		t.Errorf("the notes miss the monitoring that is there:\n%s", notes)
	}
}

// A change of the Job's specification changes its name, because Kubernetes refuses to change
// the one that is there.
func TestChart_AChangedJobIsANewOne(t *testing.T) {
	t.Parallel()
	name := func(set func(values object)) string {
		for _, o := range parse(t, render(t, "outbox.yaml", set)) {
			if o["kind"] == "Job" {
				return o["metadata"].(object)["name"].(string)
			}
		}
		return ""
	}
	names := map[string]bool{name(nil): true}
	for _, set := range []func(values object){
		func(values object) { values["image"].(object)["tag"] = "0.2.0-RC_1" },
		func(values object) { values["existingSecret"] = "mine" },
		func(values object) { values["resources"] = object{} },
	} {
		n := name(set)
		if names[n] || !regexp.MustCompile(`^outbox-migrate-[0-9a-f]{8}$`).MatchString(n) {
			t.Errorf("the Job is %s; others are %v", n, names)
		}
		names[n] = true
	}
}

// Every container is confined and probed at the ops listener.
func TestChart_PodsAreConfined(t *testing.T) {
	t.Parallel()
	pods := 0
	for _, o := range parse(t, render(t, "outbox.yaml", nil)) {
		if o["kind"] != "Deployment" && o["kind"] != "Job" {
			continue
		}
		pods++
		pod := o["spec"].(object)["template"].(object)["spec"].(object)
		container := pod["containers"].([]any)[0].(object)
		text := fmt.Sprint(pod["securityContext"], container["securityContext"])
		for _, want := range []string{"runAsNonRoot:true", "readOnlyRootFilesystem:true", "allowPrivilegeEscalation:false", "drop:[ALL]", "RuntimeDefault"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s %v: its security context lacks %s", o["kind"], container["name"], want)
			}
		}
		if probes := fmt.Sprint(container["livenessProbe"], container["readinessProbe"]); o["kind"] == "Deployment" && (!strings.Contains(probes, "path:/livez port:admin") || !strings.Contains(probes, "path:/readyz port:admin")) {
			t.Errorf("%v: its probes are %s", container["name"], probes)
		}
	}
	if pods != 5 {
		t.Errorf("found %d kinds of pods, want 5", pods)
	}
}

// Pods that are not ready do not stop the drain of a node: in an outage of the broker or the
// database none is.
func TestChart_UnreadyPodsAreEvicted(t *testing.T) {
	t.Parallel()
	budgets := 0
	for _, o := range parse(t, render(t, "outbox.yaml", nil)) {
		if o["kind"] != "PodDisruptionBudget" {
			continue
		}
		budgets++
		if spec := o["spec"].(object); spec["unhealthyPodEvictionPolicy"] != "AlwaysAllow" || spec["maxUnavailable"] != 1 {
			t.Errorf("%v has the specification %v", o["metadata"], spec)
		}
	}
	if budgets != 4 {
		t.Errorf("found %d budgets, want 4", budgets)
	}
}

// Every pod may connect to the database, Kafka, the OpenID Connect issuer and the collector of
// traces; the documents list the ports.
func TestChart_EgressPorts(t *testing.T) {
	t.Parallel()
	document := read(t, "../../docs/operators/deployment.md")
	policies := 0
	for _, o := range parse(t, render(t, "outbox.yaml", nil)) {
		if o["kind"] != "NetworkPolicy" {
			continue
		}
		policies++
		var ports []int
		for _, p := range o["spec"].(object)["egress"].([]any)[0].(object)["ports"].([]any) {
			ports = append(ports, p.(object)["port"].(int))
		}
		for _, want := range []int{9042, 19042, 9092, 443, 4318} {
			if !slices.Contains(ports, want) || !strings.Contains(document, fmt.Sprintf("%d (", want)) && want != 9042 {
				t.Errorf("%v permits the ports %v, want %d, which deployment.md lists", o["metadata"], ports, want)
			}
		}
	}
	if policies == 0 {
		t.Error("the chart has no NetworkPolicy")
	}
}

// The configuration in the Secret, with the environment of each pod, is one that the
// processes accept, and their listeners are the ones of probes and services.
func TestChart_ConfigurationIsAccepted(t *testing.T) {
	t.Parallel()
	objects := parse(t, render(t, "outbox.yaml", func(values object) {
		values["config"].(object)["http"].(object)["hosts"] = []any{"orders.example.com"}
		for _, c := range values["components"].(object) { // as Helm reads the numbers of a file
			c.(object)["env"] = object{"OUTBOX_RELAY_MAX_RECORD_BYTES": 10485760.0}
		}
	}))
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte(objects[0]["stringData"].(object)["outbox.yaml"].(string)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o["kind"] != "Deployment" {
			continue
		}
		container := o["spec"].(object)["template"].(object)["spec"].(object)["containers"].([]any)[0].(object)
		env := map[string]string{}
		for _, v := range container["env"].([]any) {
			env[v.(object)["name"].(string)], _ = v.(object)["value"].(string)
		}
		for name := range env {
			if slices.Contains(app.Settings.Strangers([]string{name + "="}), name) {
				t.Errorf("%v: %s is the variable of no setting", container["name"], name)
			}
		}
		cmd := &cobra.Command{}
		app.AddFlags(cmd)
		c, err := app.LoadConfigFrom(file, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, cmd.Flags())
		if err != nil {
			t.Fatalf("%v: %v", container["name"], err)
		}
		if c.Ops.Addr != "0.0.0.0:9090" || c.Relay.Shards != 8 {
			t.Errorf("%v listens on %s with %d shards", container["name"], c.Ops.Addr, c.Relay.Shards)
		}
		if c.Relay.MaxRecordBytes != 10485760 || !slices.Contains(c.HTTP.Hosts, "orders.example.com") {
			t.Errorf("%v: records have %d bytes, and its hosts are %v", container["name"], c.Relay.MaxRecordBytes, c.HTTP.Hosts)
		}
	}
}

// The kustomize base is the chart with its default values, and its components are the
// chart's objects for the operators.
func TestBase_IsTheChart(t *testing.T) {
	t.Parallel()
	for file, part := range map[string]string{"outbox.yaml": "base", "monitoring.yaml": "monitoring", "keda.yaml": "keda"} {
		text := "# Written by go test ./test/deploy -update.\n" + render(t, file, func(values object) {
			if part != "base" {
				everything(values)
			}
		})
		path := filepath.Join(folder, part, file)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, path) != text {
			t.Errorf("%s is not what the chart renders; go test ./test/deploy -update writes it", path)
		}
	}
}
