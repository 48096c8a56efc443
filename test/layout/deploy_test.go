package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// metricName is what the metrics of this project look like.
var metricName = regexp.MustCompile(`\b(?:relay|orders|dlq|notify|messages|schedule|watch|react)_[a-z_]+\b`)

// TestDeploy_MetricsExist finds dashboards and alerts that ask for a metric no
// code exports: they would stay empty, and silent, for ever.
func TestDeploy_MetricsExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"relay/*.go", "orders/*.go", "dlq/*.go", "dlq/*/*.go", "notify/*.go", "messages/*.go", "schedule/*.go", "watch/*.go", "react/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			code.WriteString(read(t, f))
		}
	}
	seen := 0
	for _, f := range []string{"deploy/prometheus/alerts.yml", "deploy/grafana/dashboards/outbox.json"} {
		for _, name := range metricName.FindAllString(read(t, filepath.Join(root, f)), -1) {
			seen++
			base := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			if !strings.Contains(code.String(), `"`+base+`"`) {
				t.Errorf("%s asks for %s, which nothing exports", f, base)
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

// TestDeploy_AlertsAreTestedAndExplained finds an alert that no test of the rules
// names, or that the runbook says nothing of.
func TestDeploy_AlertsAreTestedAndExplained(t *testing.T) {
	t.Parallel()
	tests := read(t, filepath.Join(root, "deploy/prometheus/alerts_test.yml"))
	runbook := read(t, filepath.Join(root, "deploy/RUNBOOK.md"))
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, filepath.Join(root, "deploy/prometheus/alerts.yml")), -1)
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
			t.Errorf("RUNBOOK.md has no section on %s", a[1])
		}
	}
}
