package layout

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricName matches the metrics of this project.
var metricName = regexp.MustCompile(`\boutbox_[a-z0-9_]+\b`)

// dashboards are the files of Grafana: all metrics, and one screen of them.
var dashboards = []string{"deploy/grafana/dashboards/outbox.json", overview}

const overview = "deploy/grafana/dashboards/overview.json"

// TestDeploy_MetricsExist finds dashboards and alerts with a metric that no
// code exports: they would stay empty without an error.
func TestDeploy_MetricsExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"relay/*.go", "relay/*/*.go", "relay/internal/*/*.go", "orders/*.go", "dlq/*.go", "dlq/*/*.go", "notify/*.go", "messages/*.go", "schedule/*.go", "subscriptions/*/*.go", "devkit/bench/*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				code.WriteString(read(t, f))
			}
		}
	}
	seen := 0
	for _, f := range append([]string{"deploy/prometheus/alerts.yml"}, dashboards...) {
		for _, name := range metricName.FindAllString(read(t, filepath.Join(root, f)), -1) {
			seen++
			if strings.HasPrefix(name, "outbox_kafka_") {
				continue // exported by a library; TestKafkaMetrics_AreOnTheDashboard compares them
			}
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
			if !strings.Contains(code.String(), `"`+base+`"`) {
				t.Errorf("%s uses %s, which no code exports", f, base)
			}
		}
	}
	if seen == 0 {
		t.Error("found no metric at all: the pattern is wrong")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDeploy_AlertsAreTestedAndExplained finds an alert without a test of the
// rules or without a section of the runbook.
func TestDeploy_AlertsAreTestedAndExplained(t *testing.T) {
	t.Parallel()
	tests := read(t, filepath.Join(root, "deploy/prometheus/alerts_test.yml"))
	runbook := read(t, filepath.Join(root, "docs/operators/runbook.md"))
	rules := read(t, filepath.Join(root, "deploy/prometheus/alerts.yml"))
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 {
		t.Fatal("found no alert at all: the pattern is wrong")
	}
	for _, a := range alerts {
		for _, what := range []string{" fires\n", " stays quiet\n"} {
			if !strings.Contains(tests, "- name: "+a[1]+what) {
				t.Errorf("alerts_test.yml has no test that %s%s", a[1], what)
			}
		}
		if !strings.Contains(runbook, "\n### "+a[1]+"\n") {
			t.Errorf("runbook.md has no section on %s", a[1])
		}
		if !strings.Contains(rules, "/docs/operators/runbook.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("%s has no runbook_url of its section", a[1])
		}
	}
}

// TestDeploy_JobsHaveAnyName finds an alert or a panel that depends on the name of a job. The
// job of a PodMonitor is its namespace and name, so the query would have no data there.
func TestDeploy_JobsHaveAnyName(t *testing.T) {
	t.Parallel()
	fixed := regexp.MustCompile(`\bjob\s*(?:=~|!~|!=|=)\s*\\?["'][^$].*`)
	for _, bad := range []string{`up{job="relay"}`, `up{a="b", job =~ "orders|.*"}`, `"up{job!=\"relay\"}"`} {
		if !fixed.MatchString(bad) {
			t.Errorf("the pattern does not match %s", bad)
		}
	}
	for _, f := range append([]string{"deploy/prometheus/alerts.yml"}, dashboards...) {
		for _, found := range fixed.FindAllString(read(t, filepath.Join(root, f)), -1) {
			t.Errorf("%s depends on the name of a job: %s", f, found)
		}
	}
}

// dashboard contains the parts of a Grafana dashboard that Grafana does not
// validate.
type dashboard struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name, Type, Query string
		} `json:"list"`
	} `json:"templating"`
	Links []struct {
		URL string `json:"url"`
	} `json:"links"`
	Panels []struct {
		ID         int    `json:"id"`
		Title      string `json:"title"`
		Type       string `json:"type"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
		GridPos struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Links []struct {
			URL string `json:"url"`
		} `json:"links"`
		FieldConfig struct {
			Defaults struct {
				Thresholds struct {
					Steps []any `json:"steps"`
				} `json:"thresholds"`
			} `json:"defaults"`
		} `json:"fieldConfig"`
		Targets []struct {
			RefID    string `json:"refId"`
			Expr     string `json:"expr"`
			Exemplar bool   `json:"exemplar"`
		} `json:"targets"`
	} `json:"panels"`
}

// TestDeploy_DashboardLoads checks the requirements of Grafana: unique panel
// ids, no overlapping panels, the data source of the variable, and a query in each
// panel, with unique names. Queries of histograms show the exemplars.
func TestDeploy_DashboardLoads(t *testing.T) {
	t.Parallel()
	uids := make(map[string]bool)
	for _, file := range dashboards {
		d := readDashboard(t, file)
		checkPanels(t, d)
		if uids[d.UID] {
			t.Errorf("%s has the uid %s of another dashboard", file, d.UID)
		}
		uids[d.UID] = true
	}
	for _, file := range dashboards {
		for _, link := range readDashboard(t, file).Links {
			if uid, ok := strings.CutPrefix(link.URL, "/d/"); ok && !uids[uid] {
				t.Errorf("%s links to %s, which is no dashboard", file, link.URL)
			}
		}
	}
}

func readDashboard(t *testing.T, file string) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, file))), &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// TestDeploy_OverviewFitsOneScreen checks that the overview answers without scrolling, in colors,
// and that each panel leads to its section of the runbook.
func TestDeploy_OverviewFitsOneScreen(t *testing.T) {
	t.Parallel()
	d := readDashboard(t, overview)
	rules := read(t, filepath.Join(root, "deploy/prometheus/alerts.yml"))
	var questions []string
	for _, p := range d.Panels {
		if end := p.GridPos.Y + p.GridPos.H; end > 20 {
			t.Errorf("panel %q ends at %d, below the screen", p.Title, end)
		}
		if p.Type == "row" {
			questions = append(questions, p.Title)
			continue
		}
		if len(p.Links) != 1 || !strings.Contains(rules, "runbook_url: "+p.Links[0].URL+"\n") {
			t.Errorf("panel %q links to %v, which is the runbook of no alert", p.Title, p.Links)
		}
		if p.Type == "stat" && len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
			t.Errorf("panel %q has no color", p.Title)
		}
	}
	if !slices.Equal(questions, []string{"Is it healthy?", "What waits?", "What fails?"}) {
		t.Errorf("the overview answers %q", questions)
	}
	var links []string
	for _, link := range d.Links {
		links = append(links, link.URL)
	}
	if !slices.Contains(links, "${console}") || !slices.ContainsFunc(links, func(url string) bool { return strings.HasSuffix(url, "/runbook.md") }) {
		t.Errorf("the overview links to %q, want console and runbook", links)
	}
	// The panel of alerts has all of this project.
	fired := regexp.MustCompile(`alertname=~"([^"]+)"`).FindStringSubmatch(expressions(&d))
	if fired == nil {
		t.Fatal("the overview shows no alerts")
	}
	ours := regexp.MustCompile("^(?:" + fired[1] + ")$")
	for _, alert := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1) {
		if !ours.MatchString(alert[1]) {
			t.Errorf("the overview does not show the alert %s", alert[1])
		}
	}
}

// expressions are all queries of a dashboard.
func expressions(d *dashboard) string {
	var all []string
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	return strings.Join(all, "\n")
}

func checkPanels(t *testing.T, d dashboard) {
	t.Helper()
	ids := make(map[int]string)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the id %d, as %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		g := p.GridPos
		if g.X < 0 || g.X+g.W > 24 || g.W == 0 || g.H == 0 {
			t.Errorf("panel %q is at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q lies over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q uses data source %q instead of the variable", p.Title, p.Datasource.UID)
		}
		names := make(map[string]bool)
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" || names[q.RefID] {
				t.Errorf("panel %q: query %q is %q", p.Title, q.RefID, q.Expr)
			}
			names[q.RefID] = true
			if q.Exemplar != strings.Contains(q.Expr, "_bucket{") {
				t.Errorf("panel %q, query %s: exemplar is %t; queries of histograms, and no others, show exemplars", p.Title, q.RefID, q.Exemplar)
			}
		}
		if len(names) == 0 {
			t.Errorf("panel %q has an empty query", p.Title)
		}
	}
	if len(ids) == 0 || d.UID == "" {
		t.Error("there is no panel, or the dashboard has no uid to be linked by")
	}
}

// TestDeploy_MetricsAreShown finds a metric of dead letters, their jobs,
// notifications or subscriptions that is on no panel.
func TestDeploy_MetricsAreShown(t *testing.T) {
	t.Parallel()
	shown := read(t, filepath.Join(root, "deploy/grafana/dashboards/outbox.json"))
	exported := regexp.MustCompile(`"(outbox_[a-z_]+)", *(?:Help: )?"`)
	seen := 0
	for _, pattern := range []string{"dlq/*.go", "dlq/*/*.go", "notify/*.go", "subscriptions/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, m := range exported.FindAllStringSubmatch(read(t, f), -1) {
				seen++
				if !regexp.MustCompile(`\b` + m[1] + `(_bucket|_count|_sum)?\b`).MatchString(shown) {
					t.Errorf("%s exports %s, which is on no panel", filepath.Base(f), m[1])
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("found %d metrics: the pattern is wrong", seen)
	}
}

// TestDeploy_DashboardQueriesParse reads each query of the dashboard as Prometheus
// does; make alerts runs it.
func TestDeploy_DashboardQueriesParse(t *testing.T) {
	t.Parallel()
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		t.Skip("make alerts says which promtool there is")
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, file := range dashboards {
		for _, p := range readDashboard(t, file).Panels {
			for _, q := range p.Targets {
				// Grafana puts a duration there.
				rules = append(rules, rule{fmt.Sprintf("dashboard_%d_panel_%d_%s", i, p.ID, q.RefID), strings.ReplaceAll(q.Expr, "$__rate_interval", "1m")})
			}
		}
	}
	// JSON is YAML.
	b, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestDeploy_KustomizeHasTheAlerts finds a rule that was changed without the generated
// PrometheusRule of the kustomize component.
func TestDeploy_KustomizeHasTheAlerts(t *testing.T) {
	t.Parallel()
	rules := strings.ReplaceAll(read(t, filepath.Join(root, "deploy/prometheus/alerts.yml")), "\n", "\n  ")
	if !strings.Contains(read(t, filepath.Join(root, "deploy/kubernetes/monitoring/monitoring.yaml")), strings.TrimSpace(rules)) {
		t.Error("deploy/kubernetes/monitoring has other alerts than deploy/prometheus; go test ./test/deploy -update writes them")
	}
}

// TestDeploy_DashboardVariables checks that data source, relay and instance can be selected
// and that each query is about the selected instances, to which the relay leads.
func TestDeploy_DashboardVariables(t *testing.T) {
	t.Parallel()
	for _, file := range dashboards {
		checkVariables(t, readDashboard(t, file))
	}
}

func checkVariables(t *testing.T, d dashboard) {
	t.Helper()
	queries := make(map[string]string)
	for _, v := range d.Templating.List {
		queries[v.Name] = v.Query
	}
	if queries["datasource"] != "prometheus" || !strings.Contains(queries["relay"], ", relay)") || !strings.Contains(queries["instance"], "$relay") {
		t.Errorf("the variables are %v", queries)
	}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			if strings.Contains(q.Expr, "ALERTS{") {
				continue // alerts have the labels of their rules
			}
			metrics, selected := len(metricName.FindAllString(q.Expr, -1)), strings.Count(q.Expr, `{instance=~"$instance"`)
			if metrics == 0 || metrics != selected {
				t.Errorf("panel %q, query %s: %d of %d metrics are of the selected instances: %s", p.Title, q.RefID, selected, metrics, q.Expr)
			}
		}
	}
}

// The versions of ScyllaDB in docs/testing.md are the ones that the tests imitate, and the image of
// docker-compose.yml has one of them.
func TestDeploy_ScyllaDBVersionsAreTested(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| ScyllaDB [^|]*\|([^|]*)\|`).FindAllStringSubmatch(read(t, filepath.Join(root, "docs/testing.md")), -1) {
		documented = append(documented, regexp.MustCompile(`[0-9]+\.[0-9]+`).FindAllString(row[1], -1)...)
	}
	tested := map[string]bool{}
	for _, pattern := range []string{"schema/*_test.go", "relay/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, v := range regexp.MustCompile(`Version: "([0-9.]+)"`).FindAllStringSubmatch(read(t, f), -1) {
				tested[v[1]] = true
				if !slices.Contains(documented, v[1]) {
					t.Errorf("%s imitates ScyllaDB %s, which docs/testing.md does not list: %q", f, v[1], documented)
				}
			}
		}
	}
	oldest := regexp.MustCompile(`DefaultVersion += "([0-9.]+)"`).FindStringSubmatch(read(t, filepath.Join(root, "devkit/scyllafake/config.go")))
	if oldest == nil {
		t.Fatal("found no default version: the pattern is wrong")
	}
	tested[oldest[1]] = true
	for _, v := range documented {
		if !tested[v] {
			t.Errorf("docs/testing.md lists ScyllaDB %s, which no test of schema or relay imitates", v)
		}
	}
	image := regexp.MustCompile(`image: scylladb/scylla:([0-9]+\.[0-9]+)`).FindStringSubmatch(read(t, filepath.Join(root, "docker-compose.yml")))
	if image == nil || !slices.Contains(documented, image[1]) {
		t.Errorf("docker-compose.yml has the image %q, docs/testing.md lists %q", image, documented)
	}
}
